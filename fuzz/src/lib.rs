//! Deterministic fuzzing: mutants of sound inputs, the same on every machine.
//!
//! DECISION: a seeded driver on stable Rust, not coverage-guided fuzzing. libFuzzer needs a nightly compiler
//! and clang's runtime, which CI has not; and a failure here is reproduced by the test alone. Mutants stay
//! near the grammar, because they are made of pieces of sound inputs and of tokens that the parsers look for.
#![forbid(unsafe_code)]

use std::env;

/// The variable that says how many inputs each target gets.
const COUNT: &str = "PLIMSOLL_FUZZ";
/// Inputs in a run of CI.
const FEW: usize = 1500;
/// No mutant is longer, however often pieces were repeated.
pub const LONGEST: usize = 16 * 1024;
/// Splices that any parser of text or binary numbers may stumble over.
const COMMON: [&[u8]; 24] = [
    b"\0",
    b"\n",
    b"\r\n",
    b"\t",
    b" ",
    b"\"",
    b"'",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b"=",
    b":",
    b",",
    b"-1",
    b"0",
    b"18446744073709551616",
    b"99999999999999999999999",
    b"1e999",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xed\xa0\x80",
    "\u{feff}é🚢".as_bytes(),
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
];

/// Inputs that each target gets: `PLIMSOLL_FUZZ`, or a few.
pub fn count() -> usize {
    let count = env::var(COUNT).ok().and_then(|count| count.parse().ok());
    count.unwrap_or(FEW)
}

/// Gives mutants of `seeds` to `take`, [`count`] of them; `tokens` are pieces of the grammar.
pub fn mutants(seeds: &[&[u8]], tokens: &[&[u8]], take: impl FnMut(&[u8])) {
    some_mutants(count(), seeds, tokens, take);
}

/// Gives the seeds and `count` mutants of them to `take`.
pub fn some_mutants(count: usize, seeds: &[&[u8]], tokens: &[&[u8]], mut take: impl FnMut(&[u8])) {
    for seed in seeds {
        take(seed);
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let tokens: Vec<&[u8]> = tokens.iter().copied().chain(COMMON).collect();
    let mut mutant = Vec::new();
    for _ in 0..count {
        mutant.clear();
        mutant.extend_from_slice(random.choice(seeds));
        // One change in most mutants: many changes leave nothing that a parser accepts.
        let most = 1 + random.below(6);
        for _ in 0..=random.below(most) {
            mutate(&mut mutant, seeds, &tokens, &mut random);
        }
        mutant.truncate(LONGEST);
        take(&mutant);
    }
}

fn mutate(mutant: &mut Vec<u8>, seeds: &[&[u8]], tokens: &[&[u8]], random: &mut Random) {
    let (from, to) = random.range(mutant.len());
    match random.below(9) {
        0 => mutant.truncate(from),
        1 => drop(mutant.drain(from..to)),
        // A piece again, once or often.
        2 => {
            let again = mutant[from..to].repeat(1 + random.below(8));
            insert(mutant, to, &again);
        }
        3 => insert(mutant, from, random.choice(tokens)),
        4 => drop(mutant.splice(from..to, random.choice(tokens).iter().copied())),
        5 => {
            let other = random.choice(seeds);
            let (begin, end) = random.range(other.len());
            drop(mutant.splice(from..to, other[begin..end].iter().copied()));
        }
        6 => mutant[from..to].reverse(),
        _ => {
            for _ in 0..=random.below(4) {
                let at = random.below(mutant.len().max(1));
                if let Some(byte) = mutant.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
}

fn insert(mutant: &mut Vec<u8>, at: usize, piece: &[u8]) {
    drop(mutant.splice(at..at, piece.iter().copied()));
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let end = u64::try_from(end.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % end).unwrap_or(0)
    }

    fn choice<'a>(&mut self, of: &[&'a [u8]]) -> &'a [u8] {
        of[self.below(of.len())]
    }

    /// A range within `length`, short in most cases.
    fn range(&mut self, length: usize) -> (usize, usize) {
        let from = self.below(length + 1);
        let longest = match self.below(4) {
            0 => length - from,
            _ => (length - from).min(16),
        };
        (from, from + self.below(longest + 1))
    }
}
