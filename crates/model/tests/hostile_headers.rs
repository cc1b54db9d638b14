//! Tests of damaged GGUF headers. Reading gives a model or a typed error that names the place.
//!
//! There is never a panic or more memory than the window could fill, and a short window is never mistaken for
//! a bad file.

mod lies;

use plimsoll_model::gguf::{
    Datum, DraftHeader, DraftTensor, Excerpt, GgufError, GgufValue, Header, ValueType,
};
use plimsoll_model::types::Q8_0;
use plimsoll_model::{Dialect, Model, ModelError};

/// A small model with experts, a window, per-layer lists and a vocabulary.
fn sound() -> DraftHeader {
    let mut draft = DraftHeader::default();
    draft.put("general.architecture", "gemma4");
    draft.put("general.alignment", 32_u32);
    for (key, number) in [
        ("block_count", 4_u32),
        ("context_length", 4096),
        ("embedding_length", 64),
        ("feed_forward_length", 128),
        ("attention.head_count", 4),
        ("attention.key_length_swa", 8),
        ("attention.sliding_window", 512),
        ("attention.shared_kv_layers", 1),
        ("nextn_predict_layers", 1),
        ("expert_count", 8),
        ("ssm.conv_kernel", 4),
        ("ssm.state_size", 16),
    ] {
        draft.put(format!("gemma4.{key}"), number);
    }
    draft.put("gemma4.attention.head_count_kv", Datum::Numbers(ValueType::I32, vec![2, 2, 0, 2]));
    draft.put("gemma4.attention.sliding_window_pattern", Datum::Numbers(ValueType::Bool, vec![1, 1, 0, 1]));
    let tokens = (0..8).map(|number| format!("token{number}").into_bytes());
    draft.put("tokenizer.ggml.tokens", Datum::Texts(tokens.collect()));
    draft.put("tokenizer.ggml.scores", Datum::Numbers(ValueType::F32, vec![0; 8]));
    draft.tensors =
        vec![tensor("token_embd.weight", &[64, 8]), tensor("blk.0.ffn_down_exps.weight", &[32, 2, 8])];
    draft
}

fn tensor(name: &str, shape: &[u64]) -> DraftTensor {
    DraftTensor { name: name.to_owned(), kind: Q8_0, shape: shape.to_vec() }
}

/// Every way to write the sound header, and the parts of a set.
fn corpus() -> Vec<Vec<u8>> {
    let mut headers = Vec::new();
    for version in [2, 3] {
        for big_endian in [false, true] {
            headers.push(DraftHeader { version, big_endian, ..sound() }.header());
            headers.push(DraftHeader { version, big_endian, ..part(0) }.header());
            headers.push(DraftHeader { version, big_endian, ..part(1) }.header());
        }
    }
    headers
}

fn part(number: u16) -> DraftHeader {
    let mut draft = if number == 0 { sound() } else { DraftHeader::default() };
    draft.tensors = vec![tensor(&format!("blk.{number}.attn_q.weight"), &[64, 64])];
    draft.put("split.no", number);
    draft.put("split.count", 2_u16);
    draft.put("split.tensors.count", 2_u32);
    draft
}

const DATA: u64 = 1 << 20;

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap()
}

/// Reads a header as that of a file with a megabyte of data behind it.
fn read(header: &[u8]) -> Result<Header<'_>, GgufError> {
    Header::read(header, length(header) + DATA, Dialect::Ggml)
}

fn model(header: &[u8]) -> Result<Model, ModelError> {
    Model::from_headers(&[read(header)?])
}

/// xorshift64*: the same on every machine and run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next()).unwrap() % limit.max(1)
    }
}

/// Numbers that sit on the edges of what lengths, counts, types and offsets may be.
const EDGES: [u64; 16] = [
    0,
    1,
    4,
    5,
    9,
    12,
    31,
    64,
    255,
    1 << 16,
    1 << 30,
    (1 << 30) + 1,
    1 << 32,
    1 << 63,
    u64::MAX - 31,
    u64::MAX,
];

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len());
    match random.below(6) {
        0 => bytes[at] = random.next().to_le_bytes()[0],
        1 => bytes[at] ^= 1 << random.below(8),
        2 => write_edge(bytes, at, 8, random),
        3 => write_edge(bytes, at, 4, random),
        4 => bytes.truncate(at + 1),
        _ => {
            let from = random.below(bytes.len());
            let piece: Vec<u8> = bytes[from..].iter().take(random.below(40)).copied().collect();
            bytes.splice(at..at, piece);
        }
    }
}

fn write_edge(bytes: &mut [u8], at: usize, width: usize, random: &mut Random) {
    let mut edge = EDGES[random.below(EDGES.len())].to_le_bytes();
    if random.below(4) == 0 {
        edge.reverse();
    }
    for (byte, new) in bytes[at..].iter_mut().zip(&edge[..width]) {
        *byte = *new;
    }
}

/// Reads what may be anything, and uses what it gives. True if it was a model.
fn survives(bytes: &[u8]) -> bool {
    let header = match read(bytes) {
        Ok(header) => header,
        Err(error) => {
            assert!(error.to_string().len() < 1000);
            if let GgufError::Truncated { needed, .. } = error {
                assert!(needed > length(bytes));
            }
            return false;
        }
    };
    assert!(header.entries.len() * 14 <= bytes.len() && header.tensors.len() * 24 <= bytes.len());
    for entry in &header.entries {
        if let GgufValue::Array(array) = entry.value {
            assert!(array.texts().map_or(0, Iterator::count) <= bytes.len());
            assert!(array.integers().map_or(0, Iterator::count) <= bytes.len());
        }
    }
    let Ok(model) = Model::from_headers(&[header]) else {
        return false;
    };
    let rows = |layer| model.hyper.key_row(layer).saturating_add(model.hyper.value_row(layer));
    (0..=model.hyper.layers).filter(|&layer| model.hyper.caches(layer)).for_each(|layer| {
        std::hint::black_box(rows(layer));
    });
    true
}

/// A million headers, each a sound one with up to four changes.
#[test]
fn a_million_damaged_headers_do_no_harm() {
    const WORKERS: u64 = 4;
    const EACH: u64 = 250_000;
    let corpus = corpus();
    let work = |seed: u64| {
        let mut random = Random(seed + 1);
        let mut bytes = Vec::new();
        let mut models = 0;
        for _ in 0..EACH {
            bytes.clone_from(&corpus[random.below(corpus.len())]);
            for _ in 0..=random.below(4) {
                mutate(&mut bytes, &mut random);
            }
            models += u64::from(survives(&bytes));
        }
        models
    };
    let models: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|seed| scope.spawn(move || work(seed))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    // Enough still pass that the code behind the reader is reached, enough fail that it is tested.
    assert!((10_000..900_000).contains(&models), "{models}");
}

/// Takes a file's header in by pieces, without its vocabulary.
fn excerpt(file: &[u8], size: usize) -> Excerpt {
    let mut excerpt = Excerpt::new(length(file), Dialect::Ggml);
    while let Some(wanted) = excerpt.wants() {
        let [start, end] = [wanted.start, wanted.end].map(|at| usize::try_from(at).unwrap());
        excerpt.take(&file[start..end.max(start + size).min(file.len())]);
    }
    excerpt
}

/// Damaged or not, a header without its vocabulary makes the model, or the error, that it makes with it.
#[test]
fn an_excerpt_says_what_the_whole_header_says() {
    let corpus = corpus();
    let mut random = Random(7);
    let mut models = 0;
    for round in 0..60_000 {
        let mut bytes = corpus[round % corpus.len()].clone();
        for _ in 0..random.below(4) {
            mutate(&mut bytes, &mut random);
        }
        if round.is_multiple_of(2) {
            bytes.resize(bytes.len() + (16 << 10), 0);
        }
        let whole = Header::read(&bytes, length(&bytes), Dialect::Ggml);
        let excerpt = excerpt(&bytes, 1 + random.below(bytes.len()));
        match (whole, excerpt.header()) {
            (Err(whole), Err(part)) => assert_eq!(part, whole),
            (Ok(whole), Ok(part)) => {
                assert_eq!((&part.tensors, part.data_offset), (&whole.tensors, whole.data_offset));
                let part = Model::from_headers(&[part]);
                models += usize::from(part.is_ok());
                assert_eq!(part, Model::from_headers(&[whole]));
            }
            (whole, part) => panic!("{whole:?}\n{part:?}"),
        }
    }
    assert!((1_000..59_000).contains(&models), "{models}");
}

/// The padding behind a header need not be in the window; every byte before it must.
#[test]
fn a_window_that_ends_anywhere_asks_for_more() {
    for header in corpus() {
        let file = length(&header) + DATA;
        let read_to = |end: usize| Header::read(&header[..end], file, Dialect::Ggml);
        let whole = (0..=header.len()).find(|&end| read_to(end).is_ok()).unwrap();
        assert!(header.len() - whole < 32);
        for end in 0..whole {
            let result = read_to(end);
            let Err(GgufError::Truncated { offset, needed }) = result else {
                panic!("{end}: {result:?}");
            };
            assert!(offset <= length(&header[..end]));
            assert!(
                (length(&header[..=end])..=length(&header[..whole])).contains(&needed),
                "{end}: {needed}"
            );
        }
        assert!((whole..=header.len()).all(|end| read_to(end) == read_to(whole)));
    }
}

#[test]
fn a_file_that_ends_anywhere_is_refused_for_good() {
    for header in corpus() {
        for end in 0..header.len() {
            let result = Header::read(&header[..end], length(&header[..end]), Dialect::Ggml);
            assert!(
                matches!(result, Err(GgufError::FileEnds { .. } | GgufError::TensorPastEnd { .. })),
                "{end}: {result:?}"
            );
        }
    }
}
