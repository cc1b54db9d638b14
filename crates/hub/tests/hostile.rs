//! Fuzz tests of the header reader over range requests: it terminates, keeps its limit, and agrees with a
//! read of the whole file.

use plimsoll_base::Bytes;
use plimsoll_model::Dialect;
use plimsoll_model::gguf::HeadReader;
use plimsoll_model::gguf::{Datum, DraftHeader, Header, ValueType};

const LIMIT: Bytes = Bytes::mib(2);

fn seed() -> Vec<u8> {
    let mut draft = DraftHeader::default();
    draft.put("general.architecture", "llama");
    draft.put("tokenizer.ggml.model", "gpt2");
    draft.put("tokenizer.ggml.tokens", Datum::Texts((0..90_u8).map(|word| vec![word; 5]).collect()));
    draft.put("tokenizer.ggml.scores", Datum::Numbers(ValueType::F32, vec![0; 90]));
    draft.put("tokenizer.ggml.merges", Datum::Texts(vec![vec![b'm'; 9]; 40]));
    draft.put("llama.block_count", 2_u32);
    draft.header()
}

/// Reads a file of `length` bytes, of which `head` is the beginning and the rest is zeros, and counts
/// requests.
fn read(head: &[u8], length: u64, first: u64) -> (HeadReader, u32, u64) {
    let mut reader = HeadReader::new(length, Dialect::Ggml, LIMIT, &[]);
    let (mut requests, mut fetched) = (0, 0);
    let mut wanted = Some(0..first.min(length));
    while let Some(range) = wanted {
        assert!(range.start < range.end && range.end <= LIMIT.get().max(first), "{range:?}");
        let place = |offset: u64| usize::try_from(offset).unwrap().min(head.len());
        let mut bytes = head[place(range.start)..place(range.end)].to_vec();
        bytes.resize(usize::try_from(range.end.min(length).saturating_sub(range.start)).unwrap(), 0);
        fetched += bytes.len() as u64;
        requests += 1;
        assert!(requests <= 20, "{range:?}");
        reader.take(range.start, bytes);
        wanted = reader.wants().ok().flatten();
    }
    (reader, requests, fetched)
}

#[test]
fn million_headers_end_within_the_limit_and_mean_what_the_whole_file_means() {
    let seed = seed();
    let tokens: [&[u8]; 6] = [
        b"tokenizer.ggml.tokens",
        b"tokenizer.ggml.merges",
        b"\x09\0\0\0",
        b"\x08\0\0\0",
        b"GGUF",
        b"\x03\0\0\0",
    ];
    let mut odd = 0;
    plimsoll_fuzz::mutants(&[&seed], &tokens, |mutant| {
        odd += 1;
        let length = mutant.len() as u64 + [0, 100, 5 << 30][odd % 3];
        // A server refuses every range of an empty file (416), before there is a reader.
        if length == 0 {
            return;
        }
        let (reader, _, fetched) = read(mutant, length, [1, 24, 300, 64 << 10][odd % 4]);
        assert!(fetched <= 2 * LIMIT.get(), "{fetched}");
        let mut whole = mutant.to_vec();
        whole.resize(mutant.len() + usize::try_from(length.min(1 << 20)).unwrap(), 0);
        let direct = Header::read(&whole, length, Dialect::Ggml);
        // Both readers see the same tensors, or both refuse.
        if let (Ok(direct), Ok(through)) = (&direct, reader.header()) {
            assert_eq!(direct.tensors, through.tensors);
            assert_eq!(direct.data_offset, through.data_offset);
        }
        if let Ok(Some(range)) = reader.wants() {
            panic!("still wants {range:?}");
        }
        assert!(
            direct.is_err() || reader.header().is_ok() || reader.wants().is_err(),
            "{:?}",
            reader.header()
        );
    });
}
