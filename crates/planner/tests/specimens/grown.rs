//! Tests of model headers that are built from an engine's error messages: each message adds the key or tensor
//! that is missing.

use plimsoll_specimens::{GrownModel, Growth, MOST_TENSORS};

fn shape<'a>(model: &'a GrownModel, name: &str) -> Option<&'a [u64]> {
    let tensor = model.header().tensors.iter().find(|tensor| tensor.name == name);
    tensor.map(|tensor| tensor.shape.as_slice())
}

#[test]
fn a_header_grows_by_what_the_engine_misses() {
    let mut model = GrownModel::new("new");
    let mut hear = |message: &str| {
        let log =
            format!("I load: x\nE llama_model_load: error loading model: {message}\nE failed to load\n");
        model.hear(&log)
    };
    for message in [
        "key not found in model: new.ssm.state_size",
        "error loading model hyperparameters: key new.ssm.state_size has wrong type u32 but expected type f32",
        "array key not found in model: new.rope.dimension_sections",
        "n_expert must be > 0 for NEW",
        "check_tensor_dims: tensor 'blk.0.attn_q.weight' not found",
        "check_tensor_dims: tensor 'blk.0.attn_q.weight' has wrong shape; expected  2048,  4096, got     1,     1",
        "missing tensor 'blk.1.attn_norm.weight'",
    ] {
        assert_eq!(hear(message), Growth::Grown, "{message}");
    }
    // Said again, it cannot be answered.
    assert!(matches!(hear("key not found in model: new.ssm.state_size"), Growth::Stuck(_)));
    assert_eq!(shape(&model, "blk.1.attn_q.weight"), Some(&[2048, 4096][..]));
    let log = "D create_tensor: loading tensor blk.0.attn_q.weight\nE x: error loading model: wrong number of tensors; expected 3, got 1";
    assert_eq!(model.hear(log), Growth::Grown);
    assert_eq!(model.header().tensors.len(), 1);
    assert_eq!(model.hear("I llama_context: constructing llama_context"), Growth::Whole);
}

#[test]
fn a_hostile_engine_ends_the_growth_with_its_message() {
    let huge = format!("E error loading model: missing tensor '{}'", "x".repeat(1 << 20));
    for log in [
        "",
        "killed",
        "E error loading model: missing tensor '",
        "E error loading model: tensor 'a' has wrong shape; expected 99999999999, 99999999999, got 1",
        "E error loading model: wrong number of tensors; expected 1, got 2",
        "E error loading model: key x has wrong array length; expected 4000000000, got 1",
        &huge,
    ] {
        let mut model = GrownModel::new("a");
        let mut stated = Growth::Grown;
        for _ in 0..3 {
            stated = model.hear(log);
        }
        assert!(matches!(&stated, Growth::Stuck(words) if words.len() <= 640), "{log:.80}");
    }
    let mut model = GrownModel::new("a");
    let requested = (0..2 * MOST_TENSORS).map(|n| format!("E error loading model: missing tensor 't{n}'"));
    assert!(requested.map(|log| model.hear(&log)).any(|stated| matches!(stated, Growth::Stuck(_))));
    assert!(model.header().tensors.len() <= MOST_TENSORS + 1);
}
