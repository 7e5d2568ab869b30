//! The one provider of cryptography for TLS, in both directions, of every family.

/// Makes `ring` the provider of this process. Whoever sets up TLS calls it first; only the first
/// call does something.
pub fn install_tls_provider() {
    // An error says that a provider is there already, and nobody installs another one.
    rustls::crypto::ring::default_provider().install_default().unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_provider_is_there_however_often_it_is_asked_for() {
        install_tls_provider();
        install_tls_provider();
        assert!(rustls::crypto::CryptoProvider::get_default().is_some());
    }
}
