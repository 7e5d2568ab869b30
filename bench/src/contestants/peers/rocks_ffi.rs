//! The few calls of `RocksDB`'s C interface that are needed, behind a safe face.
//!
//! The system's shared library is linked as it is. A handful of hand-written declarations of a
//! stable C interface needs neither a C++ build nor a generator of bindings.

#![allow(
    unsafe_code,
    reason = "RocksDB is C++; every call into its C interface is unsafe by nature"
)]

use std::ffi::{CStr, CString, c_char, c_double, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::rc::Rc;

use anyhow::{Context, Result, bail};

/// Something on the other side.
type Handle = *mut c_void;
type Error = *mut *mut c_char;

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_open(options: Handle, name: *const c_char, error: Error) -> Handle;
    fn rocksdb_close(db: Handle);
    fn rocksdb_free(memory: Handle);
    fn rocksdb_create_column_family(
        db: Handle,
        options: Handle,
        name: *const c_char,
        error: Error,
    ) -> Handle;
    fn rocksdb_drop_column_family(db: Handle, family: Handle, error: Error);
    fn rocksdb_column_family_handle_destroy(family: Handle);
    fn rocksdb_write(db: Handle, options: Handle, batch: Handle, error: Error);
    fn rocksdb_get_pinned_cf(
        db: Handle,
        options: Handle,
        family: Handle,
        key: *const u8,
        key_len: usize,
        error: Error,
    ) -> Handle;
    fn rocksdb_get_pinned(
        db: Handle,
        options: Handle,
        key: *const u8,
        key_len: usize,
        error: Error,
    ) -> Handle;
    fn rocksdb_pinnableslice_value(slice: Handle, len: *mut usize) -> *const u8;
    fn rocksdb_pinnableslice_destroy(slice: Handle);
    fn rocksdb_flush_cf(db: Handle, options: Handle, family: Handle, error: Error);
    fn rocksdb_flushoptions_create() -> Handle;
    fn rocksdb_flushoptions_set_wait(options: Handle, wait: c_uchar);
    fn rocksdb_flushoptions_destroy(options: Handle);
    fn rocksdb_writeoptions_create() -> Handle;
    fn rocksdb_writeoptions_set_sync(options: Handle, sync: c_uchar);
    fn rocksdb_writeoptions_destroy(options: Handle);
    fn rocksdb_readoptions_create() -> Handle;
    fn rocksdb_readoptions_destroy(options: Handle);
    fn rocksdb_writebatch_create() -> Handle;
    fn rocksdb_writebatch_clear(batch: Handle);
    fn rocksdb_writebatch_destroy(batch: Handle);
    fn rocksdb_writebatch_put(
        batch: Handle,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
    );
    fn rocksdb_writebatch_put_cf(
        batch: Handle,
        family: Handle,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
    );
    fn rocksdb_options_create() -> Handle;
    fn rocksdb_options_destroy(options: Handle);
    fn rocksdb_options_set_create_if_missing(options: Handle, on: c_uchar);
    fn rocksdb_options_increase_parallelism(options: Handle, threads: c_int);
    fn rocksdb_options_set_write_buffer_size(options: Handle, bytes: usize);
    fn rocksdb_options_set_max_write_buffer_number(options: Handle, number: c_int);
    fn rocksdb_options_set_recycle_log_file_num(options: Handle, number: usize);
    fn rocksdb_options_set_max_total_wal_size(options: Handle, bytes: u64);
    fn rocksdb_options_set_compression(options: Handle, kind: c_int);
    fn rocksdb_options_set_enable_blob_files(options: Handle, on: c_uchar);
    fn rocksdb_options_set_min_blob_size(options: Handle, bytes: u64);
    fn rocksdb_options_set_blob_file_size(options: Handle, bytes: u64);
    fn rocksdb_options_set_block_based_table_factory(options: Handle, table: Handle);
    fn rocksdb_block_based_options_create() -> Handle;
    fn rocksdb_block_based_options_destroy(table: Handle);
    fn rocksdb_block_based_options_set_filter_policy(table: Handle, policy: Handle);
    fn rocksdb_block_based_options_set_block_cache(table: Handle, cache: Handle);
    fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: c_double) -> Handle;
    fn rocksdb_cache_create_lru(bytes: usize) -> Handle;
    fn rocksdb_cache_destroy(cache: Handle);
    fn rocksdb_envoptions_create() -> Handle;
    fn rocksdb_envoptions_destroy(options: Handle);
    fn rocksdb_sstfilewriter_create(env: Handle, options: Handle) -> Handle;
    fn rocksdb_sstfilewriter_open(writer: Handle, name: *const c_char, error: Error);
    fn rocksdb_sstfilewriter_put(
        writer: Handle,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
        error: Error,
    );
    fn rocksdb_sstfilewriter_finish(writer: Handle, error: Error);
    fn rocksdb_sstfilewriter_destroy(writer: Handle);
    fn rocksdb_ingestexternalfileoptions_create() -> Handle;
    fn rocksdb_ingestexternalfileoptions_set_move_files(options: Handle, on: c_uchar);
    fn rocksdb_ingestexternalfileoptions_destroy(options: Handle);
    fn rocksdb_ingest_external_file(
        db: Handle,
        files: *const *const c_char,
        number: usize,
        options: Handle,
        error: Error,
    );
}

/// Makes a call that reports through an error pointer.
fn checked<T>(what: &str, call: impl FnOnce(Error) -> T) -> Result<T> {
    let mut error: *mut c_char = std::ptr::null_mut();
    let answer = call(&raw mut error);
    if error.is_null() {
        return Ok(answer);
    }
    // SAFETY: a failed call leaves a string of its own behind, to be freed with `rocksdb_free`.
    let words = unsafe {
        let words = CStr::from_ptr(error).to_string_lossy().into_owned();
        rocksdb_free(error.cast());
        words
    };
    bail!("RocksDB, {what}: {words}")
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).context("a path with a zero byte")
}

/// What a database and a column family are made with.
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// Bytes of a memtable.
    pub memtable: usize,
    /// Bytes of the block cache, shared by all column families with this tuning.
    pub cache: usize,
    /// Values of at least so many bytes go into blob files.
    pub blobs_from: Option<u64>,
}

/// The options that belong to a tuning.
pub struct Options {
    options: NonNull<c_void>,
}

impl Options {
    /// Makes them: no compression, full bloom filters of 10 bits a key.
    pub fn new(tuning: &Tuning) -> Result<Self> {
        // SAFETY: plain constructors and setters on the handles they made; the table options own
        // the filter policy, and the cache is counted, so both may be let go of here.
        let options = unsafe {
            let options = rocksdb_options_create();
            rocksdb_options_set_create_if_missing(options, 1);
            rocksdb_options_increase_parallelism(options, 2);
            rocksdb_options_set_write_buffer_size(options, tuning.memtable);
            rocksdb_options_set_max_write_buffer_number(options, 4);
            rocksdb_options_set_recycle_log_file_num(options, 4);
            rocksdb_options_set_max_total_wal_size(options, 1 << 30);
            rocksdb_options_set_compression(options, 0);
            if let Some(bytes) = tuning.blobs_from {
                rocksdb_options_set_enable_blob_files(options, 1);
                rocksdb_options_set_min_blob_size(options, bytes);
                rocksdb_options_set_blob_file_size(options, 256 << 20);
            }
            let table = rocksdb_block_based_options_create();
            let bloom = rocksdb_filterpolicy_create_bloom_full(10.0);
            rocksdb_block_based_options_set_filter_policy(table, bloom);
            let cache = rocksdb_cache_create_lru(tuning.cache);
            rocksdb_block_based_options_set_block_cache(table, cache);
            rocksdb_options_set_block_based_table_factory(options, table);
            rocksdb_cache_destroy(cache);
            rocksdb_block_based_options_destroy(table);
            options
        };
        Ok(Self { options: NonNull::new(options).context("RocksDB made no options")? })
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: made by `rocksdb_options_create`, and let go of once.
        unsafe { rocksdb_options_destroy(self.options.as_ptr()) }
    }
}

/// An open database.
pub struct Db {
    handle: Rc<Open>,
    write: Handle,
    read: Handle,
    flush: Handle,
}

/// The database itself; it is closed after the last of its column families.
struct Open(Handle);

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: made by `rocksdb_open` and closed once, when nothing refers to it any more.
        unsafe { rocksdb_close(self.0) }
    }
}

/// A column family.
pub struct Family {
    family: Handle,
    _open: Rc<Open>,
}

impl Drop for Family {
    fn drop(&mut self) {
        // SAFETY: made by the database, which is still open, and let go of once.
        unsafe { rocksdb_column_family_handle_destroy(self.family) }
    }
}

impl Db {
    /// Opens or makes a database with only the default column family; writes will be synced.
    pub fn open(path: &Path, options: &Options) -> Result<Self> {
        let path = c_path(path)?;
        // SAFETY: the options and the path live through the call.
        let handle = checked("opening", |error| unsafe {
            rocksdb_open(options.options.as_ptr(), path.as_ptr(), error)
        })?;
        // SAFETY: plain constructors and setters on the handles they made.
        let (write, read, flush) = unsafe {
            let (write, flush) = (rocksdb_writeoptions_create(), rocksdb_flushoptions_create());
            rocksdb_writeoptions_set_sync(write, 1);
            rocksdb_flushoptions_set_wait(flush, 0);
            (write, rocksdb_readoptions_create(), flush)
        };
        Ok(Self { handle: Rc::new(Open(handle)), write, read, flush })
    }

    /// Makes a column family.
    pub fn create_family(&self, name: &str, options: &Options) -> Result<Family> {
        let name = CString::new(name).context("a name with a zero byte")?;
        // SAFETY: all handles and the name live through the call.
        let family = checked("making a column family", |error| unsafe {
            rocksdb_create_column_family(
                self.handle.0,
                options.options.as_ptr(),
                name.as_ptr(),
                error,
            )
        })?;
        Ok(Family { family, _open: Rc::clone(&self.handle) })
    }

    /// Drops a column family with all its rows.
    #[allow(clippy::needless_pass_by_value, reason = "what is dropped must not be used again")]
    pub fn drop_family(&self, family: Family) -> Result<()> {
        // SAFETY: both handles are valid.
        checked("dropping a column family", |error| unsafe {
            rocksdb_drop_column_family(self.handle.0, family.family, error);
        })
    }

    /// Begins to flush a column family's memtable in the background.
    pub fn flush(&self, family: &Family) -> Result<()> {
        // SAFETY: all handles are valid.
        checked("flushing", |error| unsafe {
            rocksdb_flush_cf(self.handle.0, self.flush, family.family, error);
        })
    }

    /// Writes a batch durably.
    pub fn write(&self, batch: &Batch) -> Result<()> {
        // SAFETY: all handles are valid.
        checked("writing", |error| unsafe {
            rocksdb_write(self.handle.0, self.write, batch.0, error);
        })
    }

    /// A row of a column family, or of the default one, given to a function.
    pub fn get<T>(
        &self,
        family: Option<&Family>,
        key: &[u8],
        with: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let (key, len) = (key.as_ptr(), key.len());
        // SAFETY: all handles and the key live through the call.
        let slice = checked("reading", |error| unsafe {
            match family {
                Some(Family { family, .. }) => {
                    rocksdb_get_pinned_cf(self.handle.0, self.read, *family, key, len, error)
                }
                None => rocksdb_get_pinned(self.handle.0, self.read, key, len, error),
            }
        })?;
        if slice.is_null() {
            return Ok(None);
        }
        // SAFETY: the slice's bytes live until it is let go of, after their last use.
        unsafe {
            let mut len = 0;
            let value = rocksdb_pinnableslice_value(slice, &raw mut len);
            let answer = with(std::slice::from_raw_parts(value, len));
            rocksdb_pinnableslice_destroy(slice);
            Ok(Some(answer))
        }
    }

    /// Takes in sorted table files; they are moved.
    pub fn ingest(&self, files: &[&Path]) -> Result<()> {
        let names = files.iter().map(|path| c_path(path)).collect::<Result<Vec<_>>>()?;
        let pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        // SAFETY: all handles and the names live through the call; the options are let go of
        // once.
        checked("taking files in", |error| unsafe {
            let options = rocksdb_ingestexternalfileoptions_create();
            rocksdb_ingestexternalfileoptions_set_move_files(options, 1);
            let (files, number) = (pointers.as_ptr(), pointers.len());
            rocksdb_ingest_external_file(self.handle.0, files, number, options, error);
            rocksdb_ingestexternalfileoptions_destroy(options);
        })
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        // SAFETY: all made in `open` and let go of once.
        unsafe {
            rocksdb_writeoptions_destroy(self.write);
            rocksdb_readoptions_destroy(self.read);
            rocksdb_flushoptions_destroy(self.flush);
        }
    }
}

/// Rows to be written together.
pub struct Batch(Handle);

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        // SAFETY: a plain constructor.
        Self(unsafe { rocksdb_writebatch_create() })
    }

    /// Empties it.
    pub fn clear(&mut self) {
        // SAFETY: the handle is valid.
        unsafe { rocksdb_writebatch_clear(self.0) }
    }

    /// Adds a row of a column family, or of the default one; key and value are copied.
    pub fn put(&mut self, family: Option<&Family>, key: &[u8], value: &[u8]) {
        let (key, key_len, value, len) = (key.as_ptr(), key.len(), value.as_ptr(), value.len());
        // SAFETY: all handles and both slices live through the call.
        unsafe {
            match family {
                Some(Family { family: f, .. }) => {
                    rocksdb_writebatch_put_cf(self.0, *f, key, key_len, value, len);
                }
                None => rocksdb_writebatch_put(self.0, key, key_len, value, len),
            }
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: made in `new` and let go of once.
        unsafe { rocksdb_writebatch_destroy(self.0) }
    }
}

/// Writes one sorted table file.
pub struct TableWriter {
    writer: Handle,
    env: Handle,
}

impl TableWriter {
    /// Begins a file.
    pub fn create(path: &Path, options: &Options) -> Result<Self> {
        let path = c_path(path)?;
        // SAFETY: the options live as long as the caller's database, longer than the writer.
        let made = unsafe {
            let env = rocksdb_envoptions_create();
            Self { writer: rocksdb_sstfilewriter_create(env, options.options.as_ptr()), env }
        };
        // SAFETY: the handle and the path live through the call.
        checked("beginning a table file", |error| unsafe {
            rocksdb_sstfilewriter_open(made.writer, path.as_ptr(), error);
        })?;
        Ok(made)
    }

    /// Adds the next row in key order.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        // SAFETY: the handle and both slices live through the call.
        checked("writing a table file", |error| unsafe {
            let (at, len) = (value.as_ptr(), value.len());
            rocksdb_sstfilewriter_put(self.writer, key.as_ptr(), key.len(), at, len, error);
        })
    }

    /// Ends the file.
    pub fn finish(self) -> Result<()> {
        // SAFETY: the handle is valid.
        checked("ending a table file", |error| unsafe {
            rocksdb_sstfilewriter_finish(self.writer, error);
        })
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        // SAFETY: both made in `create` and let go of once.
        unsafe {
            rocksdb_sstfilewriter_destroy(self.writer);
            rocksdb_envoptions_destroy(self.env);
        }
    }
}
