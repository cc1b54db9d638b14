//! Compression of texts that are embedded in the program: a build script packs them, the first use unpacks them.
//!
//! DECISION: the format is raw DEFLATE from a compressor in Rust. Its output is the same on every machine, so builds
//! stay reproducible.

use std::io::{self, Read, Write};
use std::path::Path;
use std::{env, fs};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

/// Packs `source`, a path in the package, into `OUT_DIR`, under its file name with `.packed` behind it. For build scripts.
pub fn pack_file(source: &str) -> io::Result<()> {
    writeln!(io::stdout(), "cargo::rerun-if-changed={source}")?;
    let name = Path::new(source).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    fs::write(Path::new(&folder).join(name + ".packed"), pack(&fs::read(source)?)?)
}

fn pack(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
    packed.write_all(text)?;
    packed.finish()
}

/// The text again. What is no packed text gives what can be read of it.
pub fn unpack(packed: &[u8]) -> String {
    let mut text = Vec::new();
    // The bytes are part of the program, whose tests unpack them.
    let _ = DeflateDecoder::new(packed).read_to_end(&mut text);
    String::from_utf8(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_text_is_the_same_after_packing(text in ".{0,2000}") {
            prop_assert_eq!(unpack(&pack(text.as_bytes()).unwrap()), text);
        }

        #[test]
        fn any_bytes_are_unpacked_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            unpack(&bytes);
        }
    }
}
