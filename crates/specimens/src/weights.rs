//! The numbers in the tensors, made piece by piece.
//!
//! All are drawn from a bell curve, from a generator seeded by recipe and tensor name, so that a tensor is the
//! same whichever file holds it. Models that answer in words keep dimension 0 of the residual stream to
//! themselves: every embedding has the same value there, no layer writes to it, and so the output matrix can
//! lift words over bytes and give the end of an answer a fair chance, whatever the rest of the weights says.
//!
//! F32, F16, Q8_0 and Q4_0 are encoded; every other type gets zeros, which are legal in all of them.

use plimsoll_model::TensorType;
use plimsoll_model::gguf::DraftTensor;
use plimsoll_model::types::{F16, F32, Q4_0, Q8_0};

use super::vocabulary::{self, END};
use super::{Contents, Recipe};

/// A piece is at least so long, unless it is the last.
const PIECE: u64 = 1 << 16;

/// Spread of the weights, and of the output rows of words.
const SPREAD: f32 = 0.05;
const WORD_SPREAD: f32 = 0.1;

/// Dimension 0 of every embedding.
const BEACON: f32 = 0.2;

/// What dimension 0 gives a token's logit: words stand at 0.
const END_LOGIT: f32 = 1.4;
const SILENT_LOGIT: f32 = -60.0;

/// The data of one tensor, as an iterator over pieces of whole rows.
#[derive(Debug)]
pub struct Weights<'a> {
    tensor: &'a DraftTensor,
    rule: Rule,
    random: Random,
    row: u64,
}

#[derive(Clone, Debug, PartialEq)]
enum Rule {
    Ones,
    Zeros,
    Noise,
    /// All rows with the beacon at their head.
    Embedding,
    /// The first row nothing: it would write to dimension 0.
    KeepsBeacon,
    /// Rows of tokens, by what the beacon gives them.
    Output {
        words: std::ops::Range<u64>,
        beacon: f32,
    },
}

impl<'a> Weights<'a> {
    pub(super) fn new(recipe: &Recipe, tensor: &'a DraftTensor) -> Self {
        Self {
            tensor,
            rule: rule(recipe, tensor),
            random: Random::new(recipe.seed, &tensor.name),
            row: 0,
        }
    }

    fn rows(&self) -> u64 {
        self.tensor.shape.iter().skip(1).product()
    }

    fn length(&self) -> u64 {
        self.tensor.shape.first().copied().unwrap_or(1)
    }

    fn fill(&mut self, row: u64, numbers: &mut [f32]) {
        match self.rule.clone() {
            Rule::Ones => numbers.fill(1.0),
            Rule::Zeros => numbers.fill(0.0),
            Rule::KeepsBeacon if row == 0 => numbers.fill(0.0),
            Rule::Noise | Rule::KeepsBeacon => self.random.fill(numbers, SPREAD),
            Rule::Embedding => {
                self.random.fill(numbers, SPREAD);
                numbers[0] = BEACON;
            }
            Rule::Output { words, beacon } => {
                let word = words.contains(&row);
                self.random.fill(numbers, if word { WORD_SPREAD } else { 0.0 });
                numbers[0] = match row {
                    _ if word => 0.0,
                    _ if row == u64::from(END) => END_LOGIT / beacon,
                    _ => SILENT_LOGIT / beacon,
                };
            }
        }
    }
}

impl Iterator for Weights<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.length()).ok().filter(|&length| length > 0)?;
        let row_bytes = self.tensor.kind.row(self.length())?.get().max(1);
        let rows = PIECE.div_ceil(row_bytes).min(self.rows() - self.row);
        if rows == 0 {
            return None;
        }
        let mut numbers = vec![0.0; length];
        let mut piece = Vec::new();
        for row in self.row..self.row + rows {
            if encodes(self.tensor.kind) {
                self.fill(row, &mut numbers);
            }
            encode(self.tensor.kind, row_bytes, &numbers, &mut piece);
        }
        self.row += rows;
        Some(piece)
    }
}

fn rule(recipe: &Recipe, tensor: &DraftTensor) -> Rule {
    let in_layer = tensor
        .name
        .strip_prefix("blk.")
        .and_then(|rest| rest.split_once('.'));
    let name = in_layer.map_or(tensor.name.as_str(), |(_, name)| name);
    let words = recipe.contents == Contents::Words;
    match name {
        _ if name.ends_with("norm.weight") => Rule::Ones,
        _ if tensor.shape.len() == 1 => Rule::Zeros,
        "token_embd.weight" if words => Rule::Embedding,
        "output.weight" if words => output_rule(recipe),
        "attn_output.weight" | "ffn_down.weight" if words => Rule::KeepsBeacon,
        _ => Rule::Noise,
    }
}

/// After the last norm the beacon is its share of the row's root mean square.
fn output_rule(recipe: &Recipe) -> Rule {
    let embedding = f32::from(u16::try_from(recipe.embedding).unwrap_or(u16::MAX));
    let mean_square = (BEACON * BEACON + (embedding - 1.0) * SPREAD * SPREAD) / embedding;
    let words = vocabulary::basis(recipe.contents).words;
    let wide = |index: usize| u64::try_from(index).unwrap_or(u64::MAX);
    Rule::Output {
        words: wide(words.start)..wide(words.end),
        beacon: BEACON / mean_square.sqrt(),
    }
}

/// Can numbers be written in this type here? Where not, none need be drawn.
const fn encodes(kind: TensorType) -> bool {
    kind.id == F32.id || kind.id == F16.id || kind.id == Q8_0.id || kind.id == Q4_0.id
}

fn encode(kind: TensorType, row_bytes: u64, numbers: &[f32], out: &mut Vec<u8>) {
    match kind {
        F32 => out.extend(numbers.iter().flat_map(|number| number.to_le_bytes())),
        F16 => out.extend(numbers.iter().flat_map(|&number| half(number).to_le_bytes())),
        Q8_0 => numbers.chunks(32).for_each(|block| encode_q8_0(block, out)),
        Q4_0 => numbers.chunks(32).for_each(|block| encode_q4_0(block, out)),
        _ => out.resize(out.len() + usize::try_from(row_bytes).unwrap_or(0), 0),
    }
}

/// A scale, then each number as a share of it (`ggml-quants.c: quantize_row_q8_0_ref @ b10605`).
fn encode_q8_0(block: &[f32], out: &mut Vec<u8>) {
    let largest = block
        .iter()
        .fold(0.0_f32, |largest, number| largest.max(number.abs()));
    let scale = largest / 127.0;
    out.extend(half(scale).to_le_bytes());
    out.extend(block.iter().map(|number| match scale > 0.0 {
        true => nearest(number / scale).to_le_bytes()[0],
        false => 0,
    }));
}

/// A scale that makes the largest number -8, then the numbers as shares of it plus 8, the two halves of the block in the two
/// halves of a byte (`ggml-quants.c: quantize_row_q4_0_ref @ b10605`).
fn encode_q4_0(block: &[f32], out: &mut Vec<u8>) {
    let further = |a: f32, &b: &f32| if b.abs() > a.abs() { b } else { a };
    let scale = block.iter().fold(0.0_f32, further) / -8.0;
    let share = |number: f32| match scale == 0.0 {
        true => 8,
        false => nearest(number / scale + 8.0).clamp(0, 15).to_le_bytes()[0],
    };
    let (low, high) = block.split_at(block.len() / 2);
    out.extend(half(scale).to_le_bytes());
    out.extend(
        low.iter()
            .zip(high)
            .map(|(&low, &high)| share(high) << 4 | share(low)),
    );
}

/// The whole number nearest to one of -127 to 127, by the sum that leaves it in the low bits of a float.
fn nearest(number: f32) -> i32 {
    const MAGIC: f32 = 12_582_912.0;
    (number + MAGIC).to_bits().cast_signed() - MAGIC.to_bits().cast_signed()
}

/// IEEE half precision, rounded towards zero; too small becomes 0. Weights are far from the other end.
fn half(number: f32) -> u16 {
    let bits = number.to_bits();
    let sign = bits >> 16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let rebased = (magnitude >> 13).saturating_sub((127 - 15) << 10);
    let normal = if rebased < 1 << 10 { 0 } else { rebased.min(0x7bff) };
    u16::try_from(sign | normal).unwrap_or(0)
}

/// xorshift64*, as good as weights without meaning need.
#[derive(Debug)]
struct Random(u64);

impl Random {
    /// Mixes seed and name by FNV-1a; a state of 0 would stay there.
    fn new(seed: u64, name: &str) -> Self {
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

    /// The sum of four even numbers is bell enough; 4 x 65535^2 / 12 is its variance.
    fn bell(&mut self) -> f32 {
        const DEVIATION: f32 = 65535.0 * 0.577_350_26;
        let [a, b, c, d, e, f, g, h] = self.next().to_le_bytes();
        let parts = [[a, b], [c, d], [e, f], [g, h]];
        let sum: f32 = parts
            .iter()
            .map(|&part| f32::from(u16::from_le_bytes(part)))
            .sum();
        (sum - 2.0 * 65535.0) / DEVIATION
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_is_that_of_the_standard() {
        for (number, bits) in [
            (0.0, 0),
            (1.0, 0x3c00),
            (-2.0, 0xc000),
            (0.5, 0x3800),
            (65504.0, 0x7bff),
            (1e-9, 0),
        ] {
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
    fn a_block_of_q4_0_is_its_scale_and_shares() {
        let mut block = [0.0_f32; 32];
        block[0] = -16.0;
        block[1] = 14.0;
        block[16] = 2.0;
        let mut bytes = Vec::new();
        encode_q4_0(&block, &mut bytes);
        assert_eq!(bytes.len(), 18);
        assert_eq!(bytes[..2], half(2.0).to_le_bytes());
        assert_eq!(bytes[2..5], [0x90, 0x8f, 0x88]);
        bytes.clear();
        encode_q4_0(&[0.0; 32], &mut bytes);
        assert_eq!(bytes[..3], [0, 0x80, 0x88]);
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
