//! Tests of plans for cards and types without ggml's quantised matrix kernels (MMQ). There cuBLAS gets an f16
//! copy of each matrix, which takes pool memory.
//!
//! Expected sizes are products of the model's shapes; `mmq.cu: ggml_cuda_should_use_mmq`, `ggml-cuda.cu:
//! ggml_cuda_mul_mat_cublas_impl @ b10605`.

use plimsoll_base::{Bytes, Card};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_model::gguf::Header;
use plimsoll_model::{Dialect, Model};
use plimsoll_planner::{EngineBuild, EngineKind, PlanRequest, plan};
use plimsoll_specimens::shape;

/// Llama 3 8B: 4096 wide, 14 336 in its feed-forward part, a vocabulary of 128 256.
fn llama() -> Model {
    let draft = shape("l8").unwrap().files(1).remove(0);
    let header = draft.header();
    let length = u64::try_from(header.len()).unwrap() + draft.data_length().get();
    Model::from_headers(&[Header::read(&header, length, Dialect::Ggml).unwrap()]).unwrap()
}

/// The run-time pool on a card of this compute capability.
fn pool(capability: &str, build: u32, flags: &str) -> Bytes {
    let words = flags.split_ascii_whitespace().map(str::to_owned);
    let words: Vec<String> = words.chain(["-ngl", "99", "-fa", "on"].map(str::to_owned)).collect();
    let options = Options::from_argv(&words).unwrap();
    let card: Card = format!("name=X,total=32GiB,cc={capability}").parse().unwrap();
    let request = PlanRequest {
        model: &llama(),
        draft: None,
        projector: None,
        params: &options.params(ProgramKind::LlamaServer).unwrap(),
        engine: EngineBuild { kind: EngineKind::LlamaCpp, build: Some(build) },
        program: ProgramKind::LlamaServer,
        cards: &[card],
        contexts: &[],
        processor: None,
    };
    plan(&request).unwrap().cards[0].terms.pool.known()
}

fn halves(columns: u64, rows: u64) -> Bytes {
    Bytes::new(2) * columns * rows
}

#[test]
fn on_volta_a_long_prompt_copies_the_widest_matrix() {
    let copies = halves(4096, 14_336) + halves(14_336, 512);
    for build in [8799, 10605] {
        let [volta, turing] = ["7.0", "7.5"].map(|card| pool(card, build, "-c 8192 -ub 512"));
        let difference = volta.saturating_sub(turing);
        // the rest is what cuBLAS works with; tiles take their part of a turn on the other card
        assert!(difference > copies && difference < copies + Bytes::mib(128), "{difference}");
    }
    let short = pool("7.0", 10605, "-c 8192 -ub 32");
    assert!(short < Bytes::mib(16), "few columns have tiles: {short}");
}

#[test]
fn a_card_without_products_of_bytes_copies_too_and_one_with_them_does_not() {
    let copies = halves(4096, 14_336) + halves(14_336, 512);
    assert!(pool("6.0", 10605, "-c 8192 -ub 512") > copies);
    assert!(pool("6.1", 10605, "-c 8192 -ub 512") < copies);
}

/// The output matrix, 1002 MiB in halves, is multiplied with a row of each sequence, whatever an older engine
/// reserves for.
#[test]
fn the_output_matrix_is_copied_for_more_than_eight_sequences() {
    let output = halves(4096, 128_256);
    assert!(pool("7.0", 8799, "-c 8192 -ub 512 -np 8") < output);
    assert!(pool("6.0", 8799, "-c 8192 -ub 512 -np 16") > output);
    // with Volta's tiles for up to 63 columns it is not
    assert!(pool("7.0", 8799, "-c 8192 -ub 512 -np 16") < output);
}
