use super::*;
use crate::made::{H200, Operands, operation, orphan, tensor, view};

const ALL: [Generation; 3] = [Generation::Copying, Generation::Reserving, Generation::Third];

fn taken(op: &crate::abi::Tensor) -> [bool; 3] {
    ALL.map(|engine| supports(view(op), Rules { engine, ..H200 }))
}

#[test]
fn products_are_taken_but_for_halves_on_the_right() {
    let weights = tensor(Type::Q4K, [4096, 1024, 1, 1]);
    let floats = tensor(Type::F32, [4096, 7, 1, 1]);
    let halves = tensor(Type::F16, [4096, 7, 1, 1]);
    let product = |columns| operation(Op::MulMat, Type::F32, [1024, 7, 1, 1], &[&weights, columns]);
    assert_eq!(taken(&product(&floats)), [true; 3]);
    assert_eq!(taken(&product(&halves)), [false; 3]);
    let strange = tensor(Type::I32, [4096, 1024, 1, 1]);
    let product = operation(Op::MulMat, Type::F32, [1024, 7, 1, 1], &[&strange, &floats]);
    assert_eq!(taken(&product), [false; 3]);
}

#[test]
fn rows_are_fetched_of_more_types_since_b10605() {
    let ids = tensor(Type::I32, [7, 1, 1, 1]);
    let fetch = |kind, width| {
        let table = tensor(kind, [width, 100, 1, 1]);
        taken(&operation(
            Op::GetRows,
            Type::F32,
            [width, 7, 1, 1],
            &[&table, &ids],
        ))
    };
    assert_eq!(fetch(Type::Q8_0, 4096), [true; 3]);
    assert_eq!(fetch(Type::Q4K, 4096), [false, true, true]);
    assert_eq!(
        fetch(Type::Mxfp4, 2880),
        [false; 3],
        "2880 is not a multiple of 256"
    );
    assert_eq!(fetch(Type::Mxfp4, 4096), [false, true, true]);
}

#[test]
fn scans_of_states_are_taken_in_the_sizes_that_have_kernels() {
    let scan = |state: i64, decay: i64| {
        let states = tensor(Type::F32, [state, 64, 32, 1]);
        let inputs = tensor(Type::F32, [64, 32, 16, 1]);
        let times = tensor(Type::F32, [32, 16, 1, 1]);
        let decays = tensor(Type::F32, [decay, 32, 1, 1]);
        let groups = tensor(Type::F32, [state, 1, 16, 1]);
        taken(&operation(
            Op::SsmScan,
            Type::F32,
            [64, 32, 16, 1],
            &[&states, &inputs, &times, &decays, &groups],
        ))
    };
    assert_eq!(scan(128, 1), [true; 3]);
    assert_eq!(scan(96, 1), [false, false, true]);
    assert_eq!(scan(16, 16), [false; 3], "Mamba 1 has heads of one value");
}

#[test]
fn an_operation_without_its_sources_is_refused_and_kills_nobody() {
    for op in [
        Op::MulMat,
        Op::MulMatId,
        Op::FlashAttnExt,
        Op::Cpy,
        Op::Rope,
        Op::SsmScan,
        Op::Glu,
        Op::Unary,
        Op::Sum,
    ] {
        assert_eq!(taken(&orphan(op)), [false; 3], "{op:?}");
    }
    assert_eq!(taken(&orphan(Op::Other)), [false; 3]);
    assert_eq!(taken(&orphan(Op::View)), [true; 3]);
}

#[test]
fn a_weight_on_the_host_is_worth_taking_for_many_tokens() {
    let weights = tensor(Type::Q4K, [4096, 1024, 128, 1]);
    let floats = tensor(Type::F32, [4096, 512, 1, 1]);
    let product = operation(Op::MulMat, Type::F32, [1024, 512, 1, 1], &[&weights, &floats]);
    let experts = operation(Op::MulMatId, Type::F32, [1024, 8, 31, 1], &[&weights, &floats]);
    let fetch = operation(Op::GetRows, Type::F32, [4096, 512, 1, 1], &[&weights, &floats]);
    assert_eq!(
        (batch(view(&product)), batch(view(&experts)), batch(view(&fetch))),
        (512, 31, 0)
    );
}

#[test]
fn attention_is_taken_where_there_is_a_kernel() {
    let good = Operands::new(Type::F16, [128, 128], [32, 8], 512, 4096);
    let odd = Operands::new(Type::F16, [100, 100], [32, 8], 512, 4096);
    assert_eq!(
        (taken(&good.attention()), taken(&odd.attention())),
        ([true; 3], [false; 3])
    );
}
