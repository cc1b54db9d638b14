//! Writes a copy of a GGUF header without its vocabulary, so that an engine starts faster.
//!
//! Engines spend most of their start on parsing words, and memory depends only on the number of words.

use super::draft::{Datum, Writer};
use std::ops::Range;

use super::{Header, VOCABULARY, ValueType};

const WORDS: &str = "tokenizer.ggml.tokens";
// The number of words is stored as for models without a vocabulary (`llama-vocab.cpp: llama_vocab::impl::load
// @ b10605, b8799`). Callers compare the engine's memory with both headers.
/// Of the tokenizer's keys the one that sizes a tensor.
const KEPT: &str = "tokenizer.ggml.token_type_count";

impl Header<'_> {
    pub fn has_vocabulary(&self) -> bool {
        matches!(self.array(WORDS), Ok(Some(_)))
    }

    /// The bytes before the tensor data, without the vocabulary; `None` if the header has no vocabulary.
    /// `window` holds the bytes from which the header was read.
    pub fn without_vocabulary(&self, window: &[u8]) -> Option<Vec<u8>> {
        let words = self.array(WORDS).ok()??.count;
        let size = format!("{}.vocab_size", self.text("general.architecture").ok()??);
        let kept = self
            .spans()
            // `token_type_count` sizes an embedding of BERT models, so it has to stay.
            .filter(|(key, _)| !key.starts_with(VOCABULARY) || *key == KEPT);
        let kept: Vec<&[u8]> = kept.map(|(_, span)| window.get(span)).collect::<Option<_>>()?;
        let mut added = vec![("tokenizer.ggml.model", Datum::from("no_vocab"))];
        // llama.cpp takes the size from this key where the vocabulary is `no_vocab`.
        if self.entry(&size).is_none() {
            added.push((&size, Datum::Number(ValueType::U32, words)));
        }
        let mut out = Writer::begin(self.version, self.big_endian);
        out.length(self.tensors.len());
        out.length(kept.len() + added.len());
        // Copied as bytes: values need no decoding, in either byte order.
        kept.iter().for_each(|entry| out.bytes.extend(*entry));
        added.iter().for_each(|(key, datum)| out.entry(key, datum));
        out.bytes.extend(window.get(place(&self.tensor_list)?)?);
        if !self.tensors.is_empty() {
            out.pad(self.alignment);
        }
        Some(out.bytes)
    }

    /// Byte ranges of the entries: each ends where the next begins, the last at the list of tensors.
    fn spans(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        let ends = self.entries.iter().skip(1).map(|entry| entry.offset);
        let ends = ends.chain([self.tensor_list.start]);
        self.entries
            .iter()
            .zip(ends)
            .filter_map(|(entry, end)| Some((entry.key, place(&(entry.offset..end))?)))
    }
}

fn place(span: &Range<u64>) -> Option<Range<usize>> {
    Some(usize::try_from(span.start).ok()?..usize::try_from(span.end).ok()?)
}

#[cfg(test)]
mod tests {
    use super::super::tests::two_tensors;
    use super::super::{DraftHeader, Header};
    use super::*;
    use crate::{Dialect, Model};

    fn read<'a>(head: &'a [u8], data: u64) -> Header<'a> {
        let length = u64::try_from(head.len()).unwrap() + data;
        Header::read(head, length, Dialect::Ggml).unwrap()
    }

    #[test]
    fn the_words_are_gone_and_everything_else_is_as_it_was() {
        for big_endian in [false, true] {
            let mut draft = DraftHeader { big_endian, alignment: 64, ..DraftHeader::default() };
            draft.put("general.architecture", "bert");
            draft.put("tokenizer.ggml.model", "bert");
            draft.put(KEPT, 2_u32);
            draft.put("general.alignment", 64_u32);
            draft.put(WORDS, Datum::Texts(vec![b"a".to_vec(); 77]));
            draft.put("bert.block_count", 3_u32);
            draft.tensors = two_tensors();
            let (whole, data) = (draft.header(), draft.data_length().get());
            let lean = read(&whole, data).without_vocabulary(&whole).unwrap();
            let header = read(&lean, data);
            assert_eq!(header.tensors, read(&whole, data).tensors);
            assert_eq!((header.alignment, header.big_endian), (64, big_endian));
            assert_eq!(header.text("tokenizer.ggml.model"), Ok(Some("no_vocab")));
            assert_eq!(header.u32("bert.vocab_size"), Ok(Some(77)));
            assert_eq!(header.u32(KEPT), Ok(Some(2)));
            assert_eq!(header.u32("bert.block_count"), Ok(Some(3)));
            assert_eq!(header.entries.len(), 6);
            assert_eq!(header.without_vocabulary(&lean), None);
        }
    }

    /// Bytes of a synthetic model's header and the length of its data.
    fn specimen(name: &str) -> (Vec<u8>, u64) {
        let specimen = plimsoll_specimens::specimen(name);
        let draft = specimen.unwrap_or_else(|| plimsoll_specimens::shape(name).unwrap().files(1).remove(0));
        (draft.header(), draft.data_length().get())
    }

    #[test]
    fn a_model_means_the_same_without_its_words() {
        for name in ["l8", "oss", "nomic-embed", "mamba2", "gemma3n-e2b"] {
            let (whole, data) = specimen(name);
            let lean = read(&whole, data).without_vocabulary(&whole).unwrap();
            let model = |head: &[u8]| Model::from_headers(&[read(head, data)]).unwrap();
            let (before, after) = (model(&whole), model(&lean));
            assert_eq!(after.hyper, before.hyper, "{name}");
            assert_eq!(after.tensors, before.tensors, "{name}");
            assert!(lean.len() * 4 < whole.len(), "{name}");
        }
    }
}
