//! Generates random weights of tiny and synthetic models, and encodes them in ggml's types.

use super::vocabulary::{END, Vocabulary};
use crate::TensorType;
use crate::gguf::DraftTensor;
use crate::types::{F16, F32, Q8_0};

/// Standard deviation of the weights, and of the output rows of words.
const SPREAD: f32 = 0.05;
const WORD_SPREAD: f32 = 0.1;

// DECISION: every embedding has the same number in dimension 0 (the beacon), and no layer writes to it. So
// the output matrix can favour or exclude tokens through this dimension.
/// Dimension 0 of every embedding.
const BEACON: f32 = 0.2;

/// Logits that dimension 0 gives; those of words are at 0. At 1.4 an answer ends after some dozen words.
const END_LOGIT: f32 = 1.4;
const SILENT_LOGIT: f32 = -60.0;

#[derive(Clone, Debug, PartialEq)]
enum Rule {
    Ones,
    Zeros,
    Noise,
    /// All rows start with the beacon.
    Embedding,
    /// The first row is zero, since it would write to dimension 0.
    KeepsBeacon,
    /// Rows of tokens: their words, and the beacon after the last norm.
    Output {
        words: std::ops::Range<usize>,
        beacon: f32,
    },
}

/// Random rows of one tensor, generated one after the other.
#[derive(Debug)]
pub struct Rows {
    rule: Rule,
    random: Random,
    row: usize,
    rows: usize,
    numbers: Vec<f32>,
}

impl Rows {
    /// Rows of `tensor`; `words` for a model that answers in words, else noise.
    pub fn new(tensor: &DraftTensor, seed: u64, words: bool) -> Self {
        let size = |size: u64| usize::try_from(size).unwrap_or(0);
        Self {
            rule: rule(tensor, words),
            random: Random::new(seed, &tensor.name),
            row: 0,
            // All dimensions but the first, so that expert tensors are rows as well.
            rows: size(tensor.shape.iter().skip(1).product()),
            numbers: vec![0.0; size(tensor.shape.first().copied().unwrap_or(1))],
        }
    }

    /// Draws the next row; `None` after the last.
    pub fn next_row(&mut self) -> Option<&[f32]> {
        if self.row >= self.rows {
            return None;
        }
        let (row, numbers) = (self.row, &mut self.numbers);
        self.row += 1;
        match &self.rule {
            Rule::Ones => numbers.fill(1.0),
            Rule::Zeros => numbers.fill(0.0),
            Rule::KeepsBeacon if row == 0 => numbers.fill(0.0),
            Rule::Noise | Rule::KeepsBeacon => self.random.fill(numbers, SPREAD),
            Rule::Embedding => {
                self.random.fill(numbers, SPREAD);
                numbers.iter_mut().take(1).for_each(|first| *first = BEACON);
            }
            Rule::Output { words, beacon } => {
                let word = words.contains(&row);
                self.random.fill(numbers, if word { WORD_SPREAD } else { 0.0 });
                let logit = match u32::try_from(row) {
                    _ if word => 0.0,
                    Ok(END) => END_LOGIT,
                    _ => SILENT_LOGIT,
                };
                numbers.iter_mut().take(1).for_each(|first| *first = logit / beacon);
            }
        }
        Some(&self.numbers)
    }
}

fn rule(tensor: &DraftTensor, words: bool) -> Rule {
    let layered = tensor.name.strip_prefix("blk.");
    let in_layer = layered.and_then(|rest| rest.split_once('.'));
    match in_layer.map_or(tensor.name.as_str(), |(_, name)| name) {
        name if name.ends_with("norm.weight") => Rule::Ones,
        _ if tensor.shape.len() == 1 => Rule::Zeros,
        "token_embd.weight" if words => Rule::Embedding,
        "output.weight" if words => output_rule(tensor),
        "attn_output.weight" | "ffn_down.weight" if words => Rule::KeepsBeacon,
        _ => Rule::Noise,
    }
}

/// The last norm divides by the root mean square of the row, so the beacon arrives as its share of it.
fn output_rule(tensor: &DraftTensor) -> Rule {
    let length = tensor.shape.first().and_then(|&length| u16::try_from(length).ok());
    let embedding = f32::from(length.unwrap_or(u16::MAX));
    let mean_square = (BEACON * BEACON + (embedding - 1.0) * SPREAD * SPREAD) / embedding;
    Rule::Output { words: Vocabulary::words().words, beacon: BEACON / mean_square.sqrt() }
}

/// Appends a row in this type. False, and nothing appended, for types other than F32, F16 and Q8_0.
pub fn encode(kind: TensorType, row: &[f32], out: &mut Vec<u8>) -> bool {
    match kind {
        F32 => out.extend(row.iter().flat_map(|number| number.to_le_bytes())),
        F16 => out.extend(row.iter().flat_map(|&number| half(number).to_le_bytes())),
        Q8_0 => row.chunks(32).for_each(|block| encode_q8_0(block, out)),
        _ => return false,
    }
    true
}

/// A scale, then each number as a share of it (`ggml-quants.c: quantize_row_q8_0_ref @ b10605`).
fn encode_q8_0(block: &[f32], out: &mut Vec<u8>) {
    let largest = block.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
    let scale = largest / 127.0;
    out.extend(half(scale).to_le_bytes());
    out.extend(
        block.iter().map(|number| if scale > 0.0 { nearest(number / scale).to_le_bytes()[0] } else { 0 }),
    );
}

/// The integer nearest to a number of -127 to 127.
pub fn nearest(number: f32) -> i32 {
    // 1.5 x 2^23: adding it leaves the rounded integer in the low bits of the mantissa.
    const MAGIC: f32 = 12_582_912.0;
    (number + MAGIC).to_bits().cast_signed() - MAGIC.to_bits().cast_signed()
}

/// IEEE half precision, rounded towards zero. Numbers below its normal range become 0.
pub fn half(number: f32) -> u16 {
    let bits = number.to_bits();
    let sign = bits >> 16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // Half precision has an exponent bias of 15 instead of 127, and 13 bits less of mantissa.
    let rebased = (magnitude >> 13).saturating_sub((127 - 15) << 10);
    let normal = if rebased < 1 << 10 { 0 } else { rebased.min(0x7bff) };
    u16::try_from(sign | normal).unwrap_or(0)
}

/// Random generator xorshift64*, which gives the same sequence on every machine.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn new(seed: u64, name: &str) -> Self {
        // FNV-1a over the name, so that tensors of one model differ; a state of 0 would stay 0.
        let mix = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let start = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(name.as_bytes().iter().fold(start, mix).max(1))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Fills with numbers of this standard deviation.
    fn fill(&mut self, numbers: &mut [f32], spread: f32) {
        for number in numbers {
            *number = self.bell() * spread;
        }
    }

    /// A number of standard deviation 1, near enough to normal.
    fn bell(&mut self) -> f32 {
        // Four uniform numbers of 16 bits: the variance of their sum is 4 x 65535^2 / 12.
        const DEVIATION: f32 = 65535.0 * 0.577_350_26;
        let [a, b, c, d, e, f, g, h] = self.next().to_le_bytes();
        let parts = [[a, b], [c, d], [e, f], [g, h]];
        let sum: f32 = parts.iter().map(|&part| f32::from(u16::from_le_bytes(part))).sum();
        (sum - 2.0 * 65535.0) / DEVIATION
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_is_that_of_the_standard() {
        for (number, bits) in
            [(0.0, 0), (1.0, 0x3c00), (-2.0, 0xc000), (0.5, 0x3800), (65504.0, 0x7bff), (1e-9, 0)]
        {
            assert_eq!(half(number), bits, "{number}");
        }
    }

    #[test]
    fn the_bell_has_the_spread_it_says() {
        let mut numbers = vec![0.0; 40_000];
        Random::new(3, "x").fill(&mut numbers, SPREAD);
        let mean: f32 = numbers.iter().sum::<f32>() / 40_000.0;
        let square: f32 = numbers.iter().map(|number| number * number).sum::<f32>() / 40_000.0;
        assert!(mean.abs() < 0.001, "{mean}");
        assert!((square.sqrt() - SPREAD).abs() < 0.001, "{square}");
    }

    #[test]
    fn a_block_of_q8_0_is_its_scale_and_shares() {
        let mut out = Vec::new();
        let mut block = [0.0; 32];
        (block[0], block[1], block[2]) = (127.0, -63.6, 0.4);
        encode_q8_0(&block, &mut out);
        assert_eq!(out.len(), 34);
        assert_eq!(out[..5], [0x00, 0x3c, 127, 192, 0]);
    }
}
