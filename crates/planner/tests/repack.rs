//! Tests of plans for the CPU against the buffers of a real engine that copies some weights into another
//! layout (`data/measured/cpu-repack-b11549.json`).
#![allow(clippy::print_stdout)]

use plimsoll_base::{Bytes, Card};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_model::gguf::{DraftHeader, Header};
use plimsoll_model::types::{F16, IQ4_NL, MXFP4, Q4_0, Q4_K, Q6_K, Q8_0};
use plimsoll_model::{Dialect, Model, TensorType};
use plimsoll_planner::{EngineBuild, EngineKind, Plan, PlanRequest, Processor, plan};
use serde::Deserialize;

#[derive(Deserialize)]
struct Measured {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    tied: bool,
    args: String,
    #[serde(default)]
    mapped: f64,
    #[serde(default)]
    plain: f64,
    #[serde(default)]
    repacked: f64,
    anonymous: f64,
}

/// The measuring engine was built for AVX2, whatever its machine had.
const AVX2: Processor = Processor::ASSUMED;
const KINDS: [TensorType; 7] = [F16, IQ4_NL, MXFP4, Q4_0, Q4_K, Q6_K, Q8_0];

fn row_of(kind: &str) -> Row {
    serde_json::from_value(serde_json::json!({"kind": kind, "args": "", "anonymous": 0.0})).unwrap()
}

fn model(row: &Row) -> Model {
    if row.kind.is_empty() {
        return oss();
    }
    let mut draft = plimsoll_specimens::shape("m8").unwrap().files(1).remove(0);
    let kind = KINDS.into_iter().find(|kind| kind.name == row.kind).unwrap();
    for tensor in draft.tensors.iter_mut().filter(|tensor| tensor.kind == Q4_0) {
        tensor.kind = kind;
    }
    draft.tensors.retain(|tensor| !row.tied || tensor.name != "output.weight");
    read(&draft)
}

/// `specimen oss --layers 2 --experts 8`.
fn oss() -> Model {
    let mut draft = plimsoll_specimens::shape("oss").unwrap().files(1).remove(0);
    let layer = |name: &str| name.strip_prefix("blk.")?.split('.').next()?.parse::<u32>().ok();
    draft.tensors.retain(|tensor| layer(&tensor.name).is_none_or(|layer| layer < 2));
    for tensor in &mut draft.tensors {
        tensor.shape.iter_mut().filter(|n| **n == 32).for_each(|n| *n = 8);
    }
    draft.entries.retain(|(key, _)| !key.ends_with(".block_count") && !key.ends_with(".expert_count"));
    draft.put("gpt-oss.block_count", 2_u32);
    draft.put("gpt-oss.expert_count", 8_u32);
    read(&draft)
}

fn read(draft: &DraftHeader) -> Model {
    let header = draft.header();
    let length = u64::try_from(header.len()).unwrap() + draft.data_length().get();
    Model::from_headers(&[Header::read(&header, length, Dialect::Ggml).unwrap()]).unwrap()
}

fn planned(model: &Model, flags: &str, card: &str, processor: Option<Processor>) -> Plan {
    let words: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    let params = Options::from_argv(&words).unwrap().params(ProgramKind::LlamaServer).unwrap();
    let cards: [Card; 1] = [card.parse().unwrap()];
    plan(&PlanRequest {
        model,
        draft: None,
        projector: None,
        params: &params,
        engine: EngineBuild { kind: EngineKind::LlamaCpp, build: Some(11_549) },
        program: ProgramKind::LlamaServer,
        cards: &cards,
        contexts: &[],
        processor,
    })
    .unwrap()
}

const HOST: &str = "name=host,kind=host,total=64GiB";

/// The copies that a plan names, and the text.
fn reported(plan: &Plan) -> Option<(Bytes, String)> {
    let reason = plan.reasons.iter().find(|reason| reason.code == "weights_repacked_by_cpu")?;
    let bytes = serde_json::to_value(&reason.facts["bytes"]).unwrap();
    Some((serde_json::from_value(bytes).unwrap(), reason.text.clone()))
}

/// The engine prints hundredths of a MiB.
fn close(mib: f64, bytes: Bytes) -> bool {
    let hundredths: u64 = format!("{:.0}", mib * 100.0).parse().unwrap();
    // A sum of two buffers is rounded twice.
    bytes.scaled(200, 1 << 20).get().div_ceil(2).abs_diff(hundredths) <= 2
}

#[test]
fn each_weight_counts_once_and_twice_where_its_pages_are_locked() {
    let measured: Measured =
        serde_json::from_str(include_str!("../../../data/measured/cpu-repack-b11549.json")).unwrap();
    let mut wrong = Vec::new();
    println!("| weights | flags | engine's copies | planned | engine's weights | planned |");
    for row in &measured.rows {
        let model = model(row);
        let plan = planned(&model, &format!("-c 512 -np 1 {}", row.args), HOST, Some(AVX2));
        let copies = reported(&plan).map_or(Bytes::ZERO, |(bytes, _)| bytes);
        let weights = plan.host.terms.weights.bytes.unwrap();
        // A mapped buffer reaches from its first weight to its last, over copied ones; what is computed with
        // is what the engine allocates where it maps nothing.
        let same = |row: &&Row| row.args == "-lm none";
        let unmapped = measured
            .rows
            .iter()
            .filter(same)
            .find(|other| (&other.kind, other.tied) == (&row.kind, row.tied));
        let once = unmapped.map(|other| other.plain + other.repacked).unwrap();
        let expected = match row.args.as_str() {
            "-lm mmap+mlock" => row.mapped + row.repacked,
            "-nr" => row.mapped,
            _ => once,
        };
        println!("| {} | {} | {} | {copies} | {expected} | {weights} |", row.kind, row.args, row.repacked);
        let name = format!("{} tied={} {}", row.kind, row.tied, row.args);
        if !close(row.repacked, copies) || !close(expected, weights) {
            wrong.push(format!(
                "{name}: copies {} MiB, {copies} planned; weights {expected:.2}, {weights} planned",
                row.repacked
            ));
        }
        // What a process cannot give back is never more than planned: 53 MiB are the process itself and its
        // threads.
        let occupied = row.anonymous - 53.0;
        assert!(occupied < f64::from(u32::try_from(plan.host.peak.get() >> 20).unwrap()), "{name}");
        assert_eq!(plan.cards[0].peak, plan.host.peak);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_processor_decides_which_weights_are_copied() {
    let avx512 = Processor { avx512: true, ..AVX2 };
    let amx = Processor { amx: true, ..avx512 };
    let none = Processor::default();
    let neon = Processor { neon: true, ..none };
    let dotprod = Processor { dotprod: true, ..neon };
    for (kind, copying) in [
        (Q4_0, &[AVX2, avx512, amx, dotprod][..]),
        (Q4_K, &[AVX2, avx512, amx, dotprod]),
        (Q6_K, &[amx, dotprod]),
        (Q8_0, &[amx, dotprod]),
        (IQ4_NL, &[AVX2, avx512, amx, neon, dotprod]),
        (MXFP4, &[AVX2, avx512, amx, dotprod]),
        (F16, &[]),
    ] {
        let row = row_of(kind.name);
        let model = model(&row);
        for processor in [none, AVX2, avx512, amx, neon, dotprod] {
            let reported = reported(&planned(&model, "-c 512", HOST, Some(processor)));
            assert_eq!(reported.is_some(), copying.contains(&processor), "{} {processor:?}", kind.name);
        }
    }
}

#[test]
fn a_plan_says_what_is_copied_and_on_what_that_rests() {
    // The measured engine is built for AVX2, and copies no Q8_0 whatever its machine has.
    let amx = Processor { avx512: true, amx: true, ..AVX2 };
    let on_amx = |model: &Model| reported(&planned(model, "-c 512", HOST, Some(amx))).unwrap().1;
    let (q8, q4) = (on_amx(&model(&row_of("q8_0"))), on_amx(&model(&row_of("q4_0"))));
    assert!(q8.contains("copies up to 1901 MiB of the weights") && q8.contains("(AMX)"), "{q8}");
    assert!(q4.contains("copies 1006 MiB of the weights"), "{q4}");
    assert!(on_amx(&oss()).contains(", as it is built, of the weights"), "{}", on_amx(&oss()));
    let row = row_of("q4_0");
    let model = model(&row);
    let text = |flags: &str, card: &str, processor| {
        reported(&planned(&model, flags, card, processor)).map(|(_, text)| text)
    };
    let seen = text("-c 512", HOST, Some(AVX2)).unwrap();
    assert!(
        seen.contains("1006 MiB of the weights into a layout for the processor of this machine (AVX2)"),
        "{seen}"
    );
    assert!(seen.contains("counts them once") && seen.contains("page cache"), "{seen}");
    let assumed = text("-c 512", HOST, None).unwrap();
    assert!(assumed.contains("a processor with AVX2, which is assumed"), "{assumed}");
    let locked = text("-c 512 -lm mmap+mlock", HOST, Some(AVX2)).unwrap();
    assert!(locked.contains("counts 912 MiB of them twice, since the mapped file is locked"), "{locked}");
    let read = text("-c 512 -lm none", HOST, Some(AVX2)).unwrap();
    assert!(!read.contains("page cache"), "{read}");
    for flags in ["-c 512 --no-repack", "-c 512 -nr"] {
        assert_eq!(text(flags, HOST, Some(AVX2)), None, "{flags}");
    }
    // Beside a card, buffers of the card's own come first, but for `--no-host`.
    let card = "name=a,total=64GiB,cc=8.6";
    assert_eq!(text("-c 512 -ngl 4", card, Some(AVX2)), None);
    assert!(text("-c 512 -ngl 4 --no-host", card, Some(AVX2)).is_some());
    assert!(text("-c 512 -dev none", card, Some(AVX2)).is_some());
}

#[test]
fn instructions_are_read_from_the_kernels_list() {
    let x86 = "processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512bw avx512cd avx512dq avx512vl avx512_vnni amx_int8\n";
    let full = Processor { avx512: true, amx: true, ..AVX2 };
    assert_eq!(Processor::of_cpuinfo(x86), Some(full));
    let some = x86.replace("avx512vl ", "").replace("amx_int8", "amx_tile");
    assert_eq!(Processor::of_cpuinfo(&some), Some(AVX2));
    let arm = "processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\n";
    let strong = Processor { neon: true, dotprod: true, i8mm: true, ..Processor::default() };
    assert_eq!(Processor::of_cpuinfo(arm), Some(strong));
    for text in ["", "flags", "Features without a colon\n", "model name : flags: avx2"] {
        assert_eq!(Processor::of_cpuinfo(text), None, "{text}");
    }
    assert_eq!(Processor::of_cpuinfo("flags:\u{0}avx2x"), Some(Processor::default()));
}
