//! Bounded big-endian reading and writing, the only way bytes become values in Secateur.
//!
//! A [`Reader`] never allocates more than it was handed and never reads past its end; a length
//! field is checked against what is left before anything is taken.

use crate::CoreError;

/// Reads big-endian fields from a slice; every step is checked.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts reading `bytes`; `what` names the format in errors.
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, rest: bytes }
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Takes the next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], CoreError> {
        match self.rest.split_at_checked(len) {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(head)
            }
            None => Err(self.error(format!("{len} bytes wanted, {} left", self.rest.len()))),
        }
    }

    /// Takes a fixed array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], CoreError> {
        match self.rest.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(*head)
            }
            None => Err(self.error(format!("{N} bytes wanted, {} left", self.rest.len()))),
        }
    }

    /// Takes one byte.
    pub fn u8(&mut self) -> Result<u8, CoreError> {
        let [byte] = self.array::<1>()?;
        Ok(byte)
    }

    /// Takes a big-endian `u16`.
    pub fn u16(&mut self) -> Result<u16, CoreError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// Takes a big-endian `u32`.
    pub fn u32(&mut self) -> Result<u32, CoreError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Takes a big-endian `u64`.
    pub fn u64(&mut self) -> Result<u64, CoreError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Takes a flag: 0 or 1, anything else is an error.
    pub fn flag(&mut self) -> Result<bool, CoreError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.error(format!("{other} is not a flag"))),
        }
    }

    /// Takes an optional `u64`: a flag, then eight bytes (zero when absent).
    pub fn optional_u64(&mut self) -> Result<Option<u64>, CoreError> {
        let present = self.flag()?;
        let value = self.u64()?;
        if !present && value != 0 {
            return Err(self.error("an absent number has a value".into()));
        }
        Ok(present.then_some(value))
    }

    /// Ends the reading; bytes left over are an error.
    pub fn finish(self) -> Result<(), CoreError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.error(format!("{} bytes left over", self.rest.len())))
        }
    }

    /// An error about the format being read.
    pub fn error(&self, reason: String) -> CoreError {
        CoreError::Decode { what: self.what, reason }
    }
}

/// Appends big-endian fields to a buffer. The mirror of [`Reader`].
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends raw bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    /// Appends a big-endian `u16`.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends a big-endian `u32`.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends a big-endian `u64`.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends a flag as 0 or 1.
    pub fn flag(&mut self, value: bool) -> &mut Self {
        self.u8(u8::from(value))
    }

    /// Appends an optional `u64`: a flag, then eight bytes (zero when absent).
    pub fn optional_u64(&mut self, value: Option<u64>) -> &mut Self {
        self.flag(value.is_some()).u64(value.unwrap_or(0))
    }

    /// The bytes written.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}
