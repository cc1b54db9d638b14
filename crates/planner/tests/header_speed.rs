//! Speed test of the header reader: the headers of a terabyte model in six files take less than 10 ms
//! (release build). `cargo test --release -p plimsoll-planner runner::header_speed -- --nocapture` prints the
//! time.

use std::time::{Duration, Instant};

use plimsoll_model::gguf::{DraftHeader, Header};
use plimsoll_model::{Dialect, Model};

/// A debug build has the same work to do and no promise; it shows that nothing is quadratic.
const LIMIT: Duration = Duration::from_millis(if cfg!(debug_assertions) { 500 } else { 10 });

#[test]
fn a_terabyte_in_six_files_is_read_in_milliseconds() {
    let drafts = plimsoll_specimens::shape("kimi-k2").unwrap().files(6);
    let files: Vec<(Vec<u8>, u64)> = drafts.iter().map(file).collect();
    let read = || {
        let header = |(bytes, length)| Header::read(bytes, length, Dialect::Ggml).unwrap();
        let headers: Vec<Header<'_>> = files.iter().map(|(bytes, length)| header((bytes, *length))).collect();
        Model::from_headers(&headers).unwrap()
    };
    let times = (0..20).map(|_| {
        let start = Instant::now();
        let model = read();
        (start.elapsed(), model.tensors.len())
    });
    let (best, tensors) = times.min().unwrap();
    let bytes: usize = files.iter().map(|(bytes, _)| bytes.len()).sum();
    println!("{bytes} bytes of header, {tensors} tensors: {best:?}");
    assert!(best < LIMIT, "{best:?}");
}

fn file(draft: &DraftHeader) -> (Vec<u8>, u64) {
    let header = draft.header();
    let length = u64::try_from(header.len()).unwrap() + draft.data_length().get();
    (header, length)
}
