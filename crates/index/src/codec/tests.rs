//! Rows are what the generated chain says.
