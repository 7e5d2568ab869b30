//! The archive against a directory, memory and a real S3 server with a fault injector at its door.

mod chain;
mod crash;
mod damage;
mod faults;
mod grain;
mod listing;
mod part;
mod s3;
mod whole;
