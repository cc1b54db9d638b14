//! Tests of `plimsoll plan --fit`: command lines on stdout and reasons on stderr, both correct.

use serde_json::Value;

use super::{plimsoll, specimen, text};

const CARD: &str = "name=RTX4090,total=24564MiB,free=10000MiB,cc=8.9";

#[test]
fn stdout_is_a_command_line_that_fits_and_stderr_says_why_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("l8", folder.path());
    let model = model.to_str().unwrap();
    let output = plimsoll(&["plan", "--fit", "ctx", "--card", CARD, "--", "-m", model, "-c", "4096"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let line = text(&output.stdout);
    assert_eq!(line, format!("--model {model} --ctx-size 37376\n"));
    let why = unwrapped(&output.stderr);
    assert!(why.contains("a context of 37376 tokens fits, with 8 MiB to spare on RTX4090"), "{why}");
    assert!(why.contains("a context of 37632 tokens would exceed RTX4090 by 24 MiB"), "{why}");
    assert!(why.contains("with -ctk q8_0 -ctv q8_0: -c 67072"), "{why}");
    let planned = |context: &str| {
        let mut words = vec!["plan", "--card", CARD, "--"];
        let found = line.trim_end().replace("37376", context);
        words.extend(found.split(' '));
        plimsoll(&words).status.code()
    };
    assert_eq!((planned("37376"), planned("37632")), (Some(0), Some(1)));
}

/// Text for a terminal, with its lines joined again where they were broken.
fn unwrapped(bytes: &[u8]) -> String {
    text(bytes).replace("\n       ", " ").lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// On an H200 the first was filled under this budget, and the second died
/// (`data/measured/h200-growth-b8799.json`).
#[test]
fn under_a_budget_the_largest_context_is_the_one_that_survived_on_a_card() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("m8", folder.path());
    let card = "name=H200,total=143771MiB,free=143139MiB,cc=9.0,pool=vmm";
    let mut words = vec![
        "plan",
        "--fit",
        "ctx",
        "--engine",
        "llama.cpp@8799",
        "--budget",
        "3072MiB",
        "--card",
        card,
        "--",
    ];
    words.extend("-ngl 99 -b 2048 -fa on -np 1 -ctk q8_0 -ctv q8_0 -m".split(' '));
    words.push(model.to_str().unwrap());
    let output = plimsoll(&words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let line = text(&output.stdout);
    assert!(line.contains("--ctx-size 61696"), "{line}");
    let why = unwrapped(&output.stderr);
    assert!(why.contains("a context of 61952 tokens would exceed H200 by"), "{why}");
}

#[test]
fn an_answer_that_the_host_cannot_hold_is_none_to_paste() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("q30", folder.path());
    let model = model.to_str().unwrap();
    let fit = |host: &[&str]| {
        let words = ["plan", "--fit", "moe", "--card", "3060", "-m", model, "-c", "16384"];
        plimsoll(&[&words[..], host].concat())
    };
    let small = fit(&["--host", "16GiB"]);
    assert_eq!((small.status.code(), text(&small.stdout).as_str()), (Some(1), ""));
    let why = unwrapped(&small.stderr);
    assert!(why.contains("of host memory are needed, but the machine has only 16384 MiB"), "{why}");
    let hints = why.lines().filter(|line| line.starts_with("hint:") && line.contains("fits"));
    assert_eq!(hints.count(), 0, "{why}");
    let large = fit(&["--host", "64GiB"]);
    assert_eq!(large.status.code(), Some(0), "{}", text(&large.stderr));
    assert!(text(&large.stdout).contains("--n-cpu-moe 35"), "{}", text(&large.stdout));
    let unknown = fit(&[]);
    assert!(
        unwrapped(&unknown.stderr).contains("give it with --host SIZE"),
        "{}",
        unwrapped(&unknown.stderr)
    );
    assert!(text(&unknown.stdout).contains("--n-cpu-moe 35"));

    let plan = plimsoll(&["plan", "--card", "3060", "--host", "16GiB", "-m", model, "-c", "16384"]);
    let stated = unwrapped(&plan.stdout);
    assert!(stated.contains("warning: no advice makes the model fit: with --n-cpu-moe"), "{stated}");
    let reported = unwrapped(&plan.stdout);
    assert!(reported.contains("hint: --n-cpu-moe 35") && !reported.contains("MiB, fits  each"), "{reported}");
}

#[test]
fn each_direction_is_an_answer_with_its_flags_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("q30", folder.path());
    let cards = ["name=a,total=24GiB,cc=8.9", "name=b,total=24GiB,free=20GiB,cc=8.6"];
    let output = plimsoll(&[
        "plan",
        "--fit",
        "--json",
        "--card",
        cards[0],
        "--card",
        cards[1],
        "--",
        "-m",
        model.to_str().unwrap(),
        "-c",
        "16384",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let fit: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&fit["schema"], &fit["fits"]), (&"plimsoll.fit/1".into(), &true.into()));
    let answers = fit["answers"].as_array().unwrap();
    let names: Vec<&str> = answers.iter().map(|answer| answer["dimension"].as_str().unwrap()).collect();
    assert_eq!(names, ["ctx", "ub", "np", "kv", "split", "ngl", "moe"]);
    for answer in answers {
        assert!(
            answer["flags"].is_string() && answer["argv"].is_array() && answer["text"].is_string(),
            "{answer}"
        );
        let headrooms =
            answer["cards"].as_array().unwrap().iter().map(|card| card["headroom"].as_i64().unwrap());
        assert!(headrooms.min().unwrap() >= 0, "{answer}");
    }
    assert_eq!(answers[3]["best"], "f16");
    assert!(answers[4]["flags"].as_str().unwrap().starts_with("-dev CUDA0,CUDA1 -ts "));
}

#[test]
fn a_split_names_the_cards_as_the_engine_of_their_vendor_does() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("q30", folder.path());
    let cards = ["plan", "--fit", "split", "--json", "--card", "2xRX 7900 XTX"];
    for (named, starts) in [("", "-dev ROCm0"), ("-dev Vulkan1,Vulkan0", "-dev Vulkan0")] {
        let flags = ["--", "-m", model.to_str().unwrap(), "-c", "16384"];
        let line: Vec<&str> = [&cards[..], &flags, &named.split(' ').collect::<Vec<_>>()].concat();
        let output = plimsoll(&line.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>());
        let fit: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(fit["answers"][0]["flags"].as_str().unwrap().starts_with(starts), "{fit}");
    }
}

#[test]
fn the_status_is_1_where_no_direction_fits_and_hints_say_what_would_help() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("q30", folder.path());
    let output = plimsoll(&["plan", "--fit", "ctx,moe", "--card", CARD, "--", "-m", model.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "one of two directions is enough");
    let context = plimsoll(&["plan", "--fit", "ctx", "--card", CARD, "--", "-m", model.to_str().unwrap()]);
    assert_eq!((context.status.code(), context.stdout.len()), (Some(1), 0));
    let lines = text(&output.stdout);
    assert_eq!(lines.lines().count(), 1, "{lines}");
    assert!(lines.contains("--n-cpu-moe "), "{lines}");
    let why = unwrapped(&output.stderr);
    assert!(why.contains("nothing fits: a context of 256 tokens"), "{why}");
    let enough = why.lines().find(|line| line.starts_with("hint: ") && line.contains(", fits  ")).unwrap();
    assert!(enough.contains("each generated token") || enough.contains("slower with"), "{enough}");
}

#[test]
fn inapplicable_fit_dimensions_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("l8", folder.path());
    let model = model.to_str().unwrap();
    // A direction that does not apply leaves the request as it is: one that fits is printed, another one is
    // none.
    let fits = plimsoll(&["plan", "--fit", "moe,split", "--card", CARD, "--", "-m", model, "-c", "4096"]);
    assert_eq!(fits.status.code(), Some(0));
    assert_eq!(text(&fits.stdout), format!("--model {model} --ctx-size 4096\n"));
    let output = plimsoll(&["plan", "--fit", "moe,split", "--card", CARD, "--", "-m", model]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let why = unwrapped(&output.stderr);
    assert!(why.contains("the model has no experts") && why.contains("so no split is needed"), "{why}");
    let output = plimsoll(&["plan", "--fit", "cxt", "--card", CARD, "--", "-m", model]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("use ctx, ub, np, kv, split, ngl, moe or all"));
}

#[test]
fn stdout_has_one_command_line_however_many_directions_fit() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("l8", folder.path());
    let model = model.to_str().unwrap();
    let output = plimsoll(&["plan", "--fit", "all", "--card", CARD, "--", "-m", model, "-c", "4096"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), format!("--model {model} --ctx-size 37376\n"));
    let why = unwrapped(&output.stderr);
    assert!(
        why.contains("the flags on stdout are the answer for ctx; ub, np do not fit in addition"),
        "{why}"
    );
}

#[test]
fn fit_prints_the_first_hint_or_all_compatible_ones() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("q30", folder.path());
    let model = model.to_str().unwrap();
    let fit = |what: &str, card: &str| {
        let output = plimsoll(&["plan", "--fit", what, "--card", card, "-c", "32768", "-m", model]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        (text(&output.stdout), unwrapped(&output.stderr))
    };
    // The weights do not fit: the first hint is about experts, although layers are asked for before them.
    let (line, why) = fit("all", "3060");
    assert_eq!(line, format!("--model {model} --ctx-size 32768 --n-cpu-moe 37\n"));
    assert!(
        why.contains("hint: --n-cpu-moe 37")
            && why.contains("the flags on stdout are the answer for moe; alternatives: ngl"),
        "{why}"
    );
    // They fit: both answers hold together.
    let card = "name=A6000,total=48GiB,cc=8.6";
    let (line, why) = fit("moe,np", card);
    assert!(line.contains("--n-cpu-moe 0") && line.contains("--parallel "), "{line}");
    assert!(why.contains("the flags on stdout combine the answers for moe, np"), "{why}");
    assert!(why.contains("no expert is left in host memory"), "{why}");
    // Slots bring a context of their own, so the largest context and the most slots exclude each other.
    let (line, why) = fit("ctx,np", card);
    assert!(line.contains("--ctx-size 40960") && !line.contains("--parallel"), "{line}");
    assert!(why.contains("the flags on stdout are the answer for ctx; np does not fit in addition"), "{why}");
}

#[test]
fn a_number_that_the_engine_reads_otherwise_is_never_pasted() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("l8", folder.path());
    let model = model.to_str().unwrap();
    for fit in [&["--fit", "ngl"][..], &["--quants"], &["--json"], &[]] {
        let flags = ["--card", CARD, "--", "-m", model, "-c", "64k"];
        let output = plimsoll(&[&["plan"], fit, &flags].concat());
        let reported = text(&output.stdout);
        let is_error = reported.is_empty() || (fit == ["--json"] && reported.contains("\"bad_input\""));
        assert!(output.status.code() == Some(2) && is_error, "{fit:?}: {reported}");
        let why = unwrapped(&output.stderr);
        assert!(why.contains("`-c 64k`: llama-server reads this as 64; write `-c 65536`"), "{why}");
    }
}

/// Runs `plan` with a host of this size and returns status and text.
fn with_host(model: &str, host: &str, words: &[&str]) -> (Option<i32>, String) {
    let output = plimsoll(&[&["plan", model, "--host", host][..], words].concat());
    (output.status.code(), unwrapped(&output.stdout) + &unwrapped(&output.stderr))
}

#[test]
fn the_largest_context_is_held_to_the_hosts_memory() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("l8", folder.path());
    let model = model.to_str().unwrap();
    let partly = ["--card", "3060", "-ngl", "10", "--no-mmap"];
    let plan = |context: &str| with_host(model, "5GiB", &[&partly[..], &["-c", context]].concat());
    let (status, stated) = plan("8192");
    assert_eq!(status, Some(0), "{stated}");
    let largest =
        stated.split("largest context that fits: ").nth(1).unwrap().lines().next().unwrap().to_owned();
    let next = (largest.parse::<u64>().unwrap() + 256).to_string();
    assert_eq!((plan(&largest).0, plan(&next).0), (Some(0), Some(1)), "{largest}");

    let fit = [&partly[..], &["-c", "8192", "--fit", "ctx"]].concat();
    let (status, stated) = with_host(model, "5GiB", &fit);
    assert_eq!(status, Some(0), "{stated}");
    assert!(stated.contains(&format!("--ctx-size {largest}\n")), "{stated}");
    assert!(stated.contains(&format!("a context of {largest} tokens fits in the host's memory")), "{stated}");
    let (status, stated) = with_host(model, "1GiB", &fit);
    assert!(status == Some(1) && stated.contains("does not fit as requested"), "{stated}");
    assert!(stated.contains("no value fits: ") && !stated.contains("--ctx-size"), "{stated}");
    assert!(
        stated.contains("; without the limit of host memory, a context of ")
            && !stated.contains(" with -ub "),
        "{stated}"
    );
    let (status, stated) = with_host(model, "1GiB", &partly);
    assert!(status == Some(1) && stated.contains("host memory: does not fit, "), "{stated}");
}

#[test]
fn one_more_card_is_no_advice_where_the_host_has_no_memory_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("l8", folder.path());
    let model = model.to_str().unwrap();
    let advice = "spread the model over one more card";
    let stated = |host| with_host(model, host, &["--card", "3060", "-c", "65536"]).1;
    assert!(stated("32GiB").contains(advice) && !stated("500MiB").contains(advice), "{}", stated("500MiB"));
}

#[test]
fn a_hint_names_what_is_saved_on_the_card_that_lacks_the_most() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("l8", folder.path());
    let model = model.to_str().unwrap();
    let plan = |more: &[&str]| -> Value {
        let words = ["plan", "--json", model, "--card", "2x3060", "-np", "2", "-c", "262144"];
        serde_json::from_slice(&plimsoll(&[&words[..], more].concat()).stdout).unwrap()
    };
    let peak = |plan: &Value| plan["cards"][0]["peak"].as_u64().unwrap();
    let (before, after) = (plan(&[]), plan(&["-ctk", "q4_0", "-ctv", "q4_0"]));
    let hints = before["hints"].as_array().unwrap();
    let hint = hints.iter().find(|hint| hint["flags"] == "-ctk q4_0 -ctv q4_0").expect("the hint is there");
    assert_eq!(hint["saves"].as_u64().unwrap(), peak(&before) - peak(&after));
}

#[test]
fn slots_with_caches_of_their_own_are_shown_what_each_has() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("l8", folder.path());
    let model = model.to_str().unwrap();
    let stated =
        |words: &[&str]| with_host(model, "64GiB", &[&["--card", "3090", "-np", "2"], words].concat()).1;
    assert!(
        stated(&["-c", "8192"]).contains("largest context that fits: 150528 (75264 for each of 2 requests)")
    );
    assert!(stated(&["--fit", "ctx"]).contains("a context of 150528 tokens (75264 a request) fits"));
}
