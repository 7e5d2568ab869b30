//! The sink against a real file.
