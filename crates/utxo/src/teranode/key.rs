//! The key that a chain may want with every call.

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::UtxoError;

/// The name under which it is sent.
const HEADER: &str = "x-api-key";

/// An API key. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(MetadataValue<Ascii>);

impl ApiKey {
    /// Takes a key as it is written: visible ASCII letters, one at least.
    pub fn new(text: &str) -> Result<Self, UtxoError> {
        let refuse = || {
            UtxoError::Setting(
                "the API key is empty, or has other letters than visible ASCII ones".into(),
            )
        };
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(refuse());
        }
        let mut value: MetadataValue<Ascii> = text.parse().map_err(|_| refuse())?;
        value.set_sensitive(true);
        Ok(Self(value))
    }
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// Sends the key, if there is one, with every call.
#[derive(Debug, Clone)]
pub(super) struct WithKey(pub(super) Option<ApiKey>);

impl Interceptor for WithKey {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(ApiKey(value)) = &self.0 {
            request.metadata_mut().insert(HEADER, value.clone());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_shown_and_one_that_no_header_takes_is_refused() {
        let key = ApiKey::new("s3cret-key").unwrap();
        assert_eq!(
            format!("{key:?} {:?}", WithKey(Some(key.clone()))),
            "ApiKey(…) WithKey(Some(ApiKey(…)))"
        );
        for wrong in ["", "a b", "a\n", "schlüssel"] {
            assert!(ApiKey::new(wrong).is_err(), "{wrong:?}");
        }
    }
}
