//! The API over a real index.
