//! Against what an H200 was seen to ask for (`data/traces`), and against sums worked out from the source.

use plimsoll_pool::demand::DemandRules;

use super::*;
use crate::kinds::{Glu, Type};
use crate::made::{H200 as H200_NEW, Operands, gated, operation, orphan, tensor, view};

const H200: Rules = Rules {
    engine: DemandRules::Copying,
    ..H200_NEW
};

/// The blocks that an operation takes, if they are given back in reverse.
fn asked(rules: Rules, op: &crate::abi::Tensor) -> Vec<u64> {
    let mut requests = Requests::default();
    of(rules, view(op), &mut requests);
    let taken: Vec<u64> = requests.steps().iter().flatten().copied().collect();
    assert_eq!(
        requests.steps().len(),
        2 * taken.len(),
        "every block is given back"
    );
    taken
}

fn product(rules: Rules, kind: Type, width: i64, rows: i64, tokens: i64) -> Vec<u64> {
    let weights = tensor(kind, [width, rows, 1, 1]);
    let columns = tensor(Type::F32, [width, tokens, 1, 1]);
    asked(
        rules,
        &operation(Op::MulMat, Type::F32, [rows, tokens, 1, 1], &[&weights, &columns]),
    )
}

fn attention(rules: Rules, cache: Type, tokens: i64, cells: i64) -> Vec<u64> {
    let operands = Operands::new(cache, [128, 128], [32, 8], tokens, cells);
    asked(rules, &operands.attention())
}

#[test]
fn quantised_products_ask_for_what_an_h200_was_seen_to_ask_for() {
    let product = |width, rows, tokens| product(H200, Type::Q4_0, width, rows, tokens);
    assert_eq!(product(4096, 1024, 512), [2_377_728, 8_650_752]);
    assert_eq!(product(14_336, 4096, 512), [8_275_968, 8_650_752]);
    assert_eq!(product(14_336, 4096, 2), [32_256]);
    assert_eq!(product(4096, 32_000, 1), [4608]);
}

#[test]
fn attention_asks_for_what_an_h200_was_seen_to_ask_for() {
    assert_eq!(attention(H200, Type::Q8_0, 2, 256), [65_536, 1024]);
    assert_eq!(attention(H200, Type::Q8_0, 1, 2304), [131_072, 2048]);
    assert_eq!(attention(H200, Type::F16, 1, 2304), [196_608, 3072]);
    assert_eq!(attention(H200, Type::F16, 2, 256), [67_584]);
    assert_eq!(attention(H200, Type::Q8_0, 512, 512), [1 << 20, 1 << 20]);
    assert_eq!(attention(H200, Type::F16, 512, 512), []);
    assert_eq!(
        attention(H200, Type::Q8_0, 512, 61_440),
        [125_829_120, 125_829_120]
    );
}

/// One pass of the model of the recordings (`specimen m8`), layer by layer, as llama.cpp orders it:
/// `outputs` tokens go on behind the last attention.
fn forward(cache: Type, tokens: i64, outputs: i64, cells: i64, steps: &mut Vec<Option<u64>>) {
    let mut add = |sizes: Vec<u64>| {
        steps.extend(sizes.iter().copied().map(Some));
        steps.extend(sizes.iter().map(|_| None));
    };
    let product = |width, rows, tokens| product(H200, Type::Q4_0, width, rows, tokens);
    for layer in 0..8 {
        for rows in [4096, 1024, 1024] {
            add(product(4096, rows, tokens));
        }
        add(attention(H200, cache, tokens, cells));
        add(product(4096, 4096, tokens));
        let on = if layer < 7 { tokens } else { outputs };
        if on > 0 {
            // for one token gate and up are one kernel, as `fusion` says
            let wide = if on == 1 { 1 } else { 2 };
            (0..wide).for_each(|_| add(product(4096, 14_336, on)));
            add(product(14_336, 4096, on));
        }
    }
    if outputs > 0 {
        add(product(4096, 32_000, outputs));
    }
}

#[test]
fn the_beginning_of_a_recorded_session_is_made_step_by_step() {
    for (cache, recorded) in [
        (
            Type::Q8_0,
            include_str!("../../../../data/traces/old-q8_0-ub512-head.csv"),
        ),
        (
            Type::F16,
            include_str!("../../../../data/traces/old-f16-ub512-head.csv"),
        ),
    ] {
        let recorded: Vec<Option<u64>> = recorded
            .lines()
            .filter(|line| line.starts_with(|first: char| first.is_ascii_digit()))
            .map(|line| line.split(',').collect::<Vec<_>>())
            .map(|columns| (columns[2] == "allocate").then(|| columns[4].parse().unwrap()))
            .collect();
        let mut made = Vec::new();
        forward(cache, 2, 1, 256, &mut made);
        let mut done = 0;
        while made.len() < recorded.len() {
            done += 512;
            let whole = done % 2048 == 0;
            forward(cache, 512, i64::from(whole), done, &mut made);
            for _ in 0..if whole { 2 } else { 0 } {
                forward(cache, 1, 1, done + 256, &mut made);
            }
        }
        assert_eq!(made[..recorded.len()], recorded, "{cache:?}");
        assert!(recorded.len() > 1000);
    }
}

#[test]
fn a_build_that_reserves_the_copies_asks_for_none() {
    assert_eq!(attention(H200_NEW, Type::Q8_0, 512, 61_440), []);
    assert_eq!(
        product(H200_NEW, Type::Q4_0, 4096, 1024, 512),
        [2_377_728, 8_650_752]
    );
    // 256 tiles on 132 multiprocessors fill two waves to 96 %
    assert_eq!(product(H200, Type::Q4_0, 4096, 8192, 512).len(), 2);
    assert_eq!(product(H200_NEW, Type::Q4_0, 4096, 8192, 512), [2_377_728]);
}

#[test]
fn activations_are_padded_for_the_widest_tile_that_they_fill() {
    // 31 columns: tiles of 24 at most, of 16 where rows are uneven
    let activations = |rules, rows| product(rules, Type::Q8_0, 512, rows, 31)[0];
    let columns = 31 * 512 * 144 / 128;
    assert_eq!(activations(H200, 1024), columns + 128 * 144);
    assert_eq!(activations(H200_NEW, 1024), columns + 24 * 144);
    assert_eq!(activations(H200_NEW, 1000), columns + 16 * 144);
}

#[test]
fn experts_ask_for_lists_of_who_goes_where() {
    // Qwen3 30B-A3B: 128 experts, 8 of them for each of 512 tokens
    let weights = tensor(Type::Q8_0, [2048, 768, 128, 1]);
    let columns = tensor(Type::F32, [2048, 1, 512, 1]);
    let ids = tensor(Type::I32, [8, 512, 1, 1]);
    let up = operation(
        Op::MulMatId,
        Type::F32,
        [768, 8, 512, 1],
        &[&weights, &columns, &ids],
    );
    let quantised = 512 * 8 * 2048 * 144 / 128;
    let lists = [4 * 4096, 4 * 4096, 4 * 129];
    assert_eq!(asked(H200, &up)[..3], lists);
    assert_eq!(asked(H200, &up)[3], quantised + 128 * 144);
    // one column for all of a token's experts: too few for any tile
    assert_eq!(asked(H200_NEW, &up)[3], quantised);
    let few = tensor(Type::F32, [2048, 1, 8, 1]);
    let few = operation(Op::MulMatId, Type::F32, [768, 8, 8, 1], &[&weights, &few, &ids]);
    assert_eq!(asked(H200, &few), [8 * 2048 * 36 / 32]);
}

#[test]
fn without_flash_attention_keys_are_copied_as_they_are_read() {
    const PRECISE: i32 = 10;
    let keys = crate::made::swapped(tensor(Type::F16, [128, 8, 8192, 1]), 1, 2);
    let queries = crate::made::swapped(tensor(Type::F32, [128, 32, 512, 1]), 1, 2);
    let mut scores = operation(Op::MulMat, Type::F32, [8192, 512, 32, 1], &[&keys, &queries]);
    scores.op_params[0] = PRECISE;
    let pointers = [2 * 8 * 32, 8 * 32];
    // b8799 converts the queries, b10605 the keys, which grow
    assert_eq!(
        asked(H200, &scores),
        [2 * 128 * 32 * 512, pointers[0], pointers[1]]
    );
    assert_eq!(
        asked(H200_NEW, &scores),
        [4 * 128 * 8 * 8192, pointers[0], pointers[1]]
    );
    let probabilities = tensor(Type::F32, [8192, 512, 32, 1]);
    let values = tensor(Type::F16, [8192, 128, 8, 1]);
    let mixed = operation(
        Op::MulMat,
        Type::F32,
        [128, 512, 32, 1],
        &[&values, &probabilities],
    );
    let sizes = [2 * 8192 * 512 * 32, 2 * 128 * 512 * 32, pointers[0], pointers[1]];
    assert_eq!(asked(H200_NEW, &mixed), sizes);
}

#[test]
fn float_weights_go_through_halves_where_the_card_multiplies_them() {
    let half = product(H200_NEW, Type::F16, 4096, 1024, 512);
    assert_eq!(half, [2 * 4096 * 512, 2 * 1024 * 512]);
    assert_eq!(product(H200, Type::F16, 4096, 1024, 512), half);
    assert_eq!(product(H200_NEW, Type::Bf16, 4096, 1024, 512), [2 * 4096 * 512]);
    assert_eq!(product(H200_NEW, Type::F32, 4096, 1024, 512), []);
    assert_eq!(
        product(H200_NEW, Type::F16, 4096, 1024, 16),
        [],
        "a kernel of its own for few columns"
    );
}

#[test]
fn gate_and_up_of_one_token_ask_once() {
    let weights = [
        tensor(Type::Q4_0, [4096, 14_336, 1, 1]),
        tensor(Type::Q4_0, [4096, 14_336, 1, 1]),
    ];
    let spared = |tokens: i64, columns: [&crate::abi::Tensor; 2], glu| {
        let [gate, up] = [0, 1].map(|i| {
            operation(
                Op::MulMat,
                Type::F32,
                [14_336, tokens, 1, 1],
                &[&weights[i], columns[i]],
            )
        });
        let activation = gated(glu, [14_336, tokens, 1, 1], &[&gate, &up]);
        fusion::spared(view(&activation), 900).is_some_and(|product| product.is(view(&up)))
    };
    let (one, other) = (
        tensor(Type::F32, [4096, 1, 1, 1]),
        tensor(Type::F32, [4096, 1, 1, 1]),
    );
    let two = tensor(Type::F32, [4096, 2, 1, 1]);
    assert!(spared(1, [&one, &one], Glu::Swiglu));
    assert!(!spared(2, [&two, &two], Glu::Swiglu));
    assert!(!spared(1, [&one, &other], Glu::Swiglu));
    assert!(!spared(1, [&one, &one], Glu::Reglu));
}

#[test]
fn absurd_operands_ask_for_absurd_sizes_and_no_panic() {
    for op in [
        Op::MulMat,
        Op::MulMatId,
        Op::FlashAttnExt,
        Op::Argsort,
        Op::TopK,
        Op::SsmScan,
        Op::SoftMax,
        Op::SolveTri,
        Op::Sum,
    ] {
        assert_eq!(asked(H200, &orphan(op)), [], "{op:?}");
        for (ne, nb) in [(i64::MAX, usize::MAX), (-3, 0), (0, 0), (1 << 40, 1)] {
            let mut absurd = tensor(Type::Q8_0, [32, 1, 1, 1]);
            (absurd.ne, absurd.nb) = ([ne; 4], [nb; 4]);
            for rules in [H200, H200_NEW] {
                let mut result = operation(op, Type::F32, [8, 8, 8, 8], &[&absurd; 6]);
                asked(rules, &result);
                result.ne = [ne; 4];
                let mut requests = Requests::default();
                of(rules, view(&result), &mut requests);
            }
        }
    }
}
