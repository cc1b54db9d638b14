//! What short reports tell in words, read into evidence.

use plimsoll_base::Bytes;

use super::circumstances;
use crate::evidence::{Evidence, Source};
use crate::saying::Saying;

fn told(text: &str) -> Evidence {
    let mut evidence = Evidence::default();
    circumstances::read(&mut evidence, Source::Context, text.as_bytes());
    evidence
}

#[test]
fn a_size_in_prose_belongs_to_the_nearest_noun() {
    let evidence = told("A model of 35.5 GB, with 16GB RAM beside a 24 GB card");
    assert_eq!(evidence.told_model, Some(Bytes::kib(37_224_448)));
    assert_eq!(evidence.told_host, Some(Bytes::gib(16)));
    assert_eq!(evidence.cards, [Bytes::gib(24)]);
    let named = told("Llama-3-70B in fp16 on 2x RTX 4090");
    assert_eq!(named.named_cards, Some(Bytes::gib(48)));
    assert!(named.weights() > Some(Bytes::gib(128)) && named.weights_beyond_cards().is_some());
    assert!(
        told("an 8B model at fp8 on an A100")
            .weights_beyond_cards()
            .is_none()
    );
}

#[test]
fn what_did_not_help_is_told_from_what_did() {
    let cured = told("It ran out of memory, and a smaller batch size solved it.");
    assert!(cured.says(Saying::CuredByBatch) && !cured.says(Saying::LessDidNotHelp));
    let in_vain = told("I lowered the batch size, but that didn't solve it.");
    assert!(in_vain.says(Saying::LessDidNotHelp) && !in_vain.says(Saying::CuredByBatch));
}

#[test]
fn readings_in_a_row_are_of_memory_only_with_a_unit() {
    assert_eq!(told("8012 -> 8034 -> 8056 MiB").series.len(), 3);
    assert!(
        told("contexts of 8192 -> 16384 -> 32768 were tried")
            .series
            .is_empty()
    );
}
