//! The functions that the fuzz targets of this folder call; the ordinary tests include the same file.

mod decoders;

pub use decoders::*;
