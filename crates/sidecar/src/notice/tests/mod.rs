//! Tests of notices, told as sentences; `scene` is the small world they play in.

mod flips;
mod keys;
mod order;
mod rejections;
mod scene;
mod validators;
mod vectors;
