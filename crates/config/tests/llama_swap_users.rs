//! Tests of llama-swap's YAML as its users write it: filters, groups, sets, addresses elsewhere, and single
//! bad entries.

use plimsoll_config::{ConfigMistakes, Configuration, ConfiguredModel, Launch, ProxyAddress};
use serde_json::{Value, json};

fn read(text: &str) -> Configuration {
    plimsoll_config::parse_each("c.yaml", text, &|name| (name == "HOME").then(|| "/home/u".to_owned()))
        .unwrap()
}

fn reported(roster: &Configuration) -> Vec<String> {
    roster.warnings.iter().map(ToString::to_string).collect()
}

fn names(roster: &Configuration) -> (Vec<&str>, Vec<&str>) {
    let served = roster.models.iter().map(|model| model.name.as_str()).collect();
    (served, roster.refused.iter().map(|model| model.name.as_str()).collect())
}

fn set(model: &ConfiguredModel, name: &str) -> Value {
    Value::Object(model.filters.set_for(name).map(|(key, value)| (key.clone(), value.clone())).collect())
}

#[test]
fn filters_are_read_with_macros_in_keys_and_values_and_with_their_types() {
    let text = r#"
macros: {temp: 0.7, hot: "${MODEL_ID}:hot"}
models:
  alpha:
    cmd: p ${PORT}
    name: Alpha of ${MODEL_ID}
    description: thinks
    filters:
      stripParams: "top_k, , model,min_p"
      setParams: {temperature: "${temp}", seed: "7", n: 3, stream: false, model: no, kw: {a: [1, "x", ~]}}
      setParamsByID:
        "${MODEL_ID}": {top_p: 0.5}
        "${hot}": {temperature: 1.5}
  beta:
    cmd: p ${PORT}
    filters:
      setParamsByID:
        "${MODEL_ID}:hot": {temperature: 1}
"#;
    let roster = read(text);
    assert_eq!(reported(&roster), [""; 0]);
    let [alpha, beta] = &roster.models[..] else { panic!("two models") };
    assert_eq!(
        (alpha.title.as_deref(), alpha.description.as_deref()),
        (Some("Alpha of alpha"), Some("thinks"))
    );
    assert_eq!(
        (&alpha.aliases[..], &beta.aliases[..]),
        (&["alpha:hot".to_owned()][..], &["beta:hot".to_owned()][..])
    );
    assert_eq!(alpha.filters.strip, ["top_k", "min_p"]);
    let all = json!({"temperature": 0.7, "seed": "7", "n": 3, "stream": false, "kw": {"a": [1, "x", null]}});
    let with = |key: &str, value: Value| {
        let mut all = all.clone();
        all[key] = value;
        all
    };
    assert_eq!(set(alpha, "other"), all);
    assert_eq!(set(alpha, "alpha"), with("top_p", json!(0.5)));
    assert_eq!(set(alpha, "alpha:hot"), with("temperature", json!(1.5)));
    assert!(beta.filters.set_for("beta").next().is_none());
}

#[test]
fn groups_keep_their_meaning_and_pin_only_what_never_leaves() {
    let text = "models:\n  a: {cmd: 'p ${PORT}'}\n  b: {cmd: 'p ${PORT}'}\n  c: {cmd: 'p ${PORT}', aliases: [see]}\n  d: {cmd: 'p ${PORT}'}\n\
                groups:\n  main: {swap: true, exclusive: false, persistent: true, members: [a, b]}\n  \
                kept: {swap: false, persistent: true, members: [see]}\n  old: {simultaneous: false, models: [d]}\n";
    let roster = read(text);
    let group = |at: usize| {
        let model: &ConfiguredModel = &roster.models[at];
        let group = model.company.group.as_ref();
        (model.pinned, group.map(|it| (it.name.to_string(), it.swap, it.exclusive, it.persistent)))
    };
    assert_eq!(group(0), (false, Some(("main".to_owned(), true, false, true))));
    assert_eq!(group(1), group(0));
    assert_eq!(group(2), (true, Some(("kept".to_owned(), false, true, true))));
    assert_eq!(group(3), (false, None));
    let reported = reported(&roster);
    assert!(reported.iter().any(|line| line.contains("unknown key `simultaneous`")), "{reported:?}");
    let twice = read("models:\n  a: {cmd: 'p ${PORT}'}\ngroups:\n  g: {members: [a]}\n  h: {members: [a]}\n");
    let line = "c.yaml:5: `a` is already in the group `g`, and only that one counts; name it in one group";
    assert_eq!(self::reported(&twice), [line]);
}

#[test]
fn a_matrix_lists_the_sets_that_may_run_together_and_use_chooses() {
    let models = "models:\n  a: {cmd: 'p ${PORT}'}\n  b: {cmd: 'p ${PORT}'}\n  c: {cmd: 'p ${PORT}'}\n";
    let matrix = "{vars: {x: a}, evict_costs: {x: 5}, sets: {one: '(x | b) & c', bad: 'x &', more: 'b'}}";
    let roster = read(&format!("{models}matrix: {matrix}\n"));
    let sets: Vec<Vec<&str>> = roster.models[0]
        .company
        .sets
        .as_ref()
        .unwrap()
        .iter()
        .map(|set| set.iter().map(String::as_str).collect())
        .collect();
    assert_eq!(sets, [vec!["a", "c"], vec!["b", "c"], vec!["b"]]);
    let reported = reported(&roster);
    assert!(
        reported.iter().any(|line| line.contains("the set `bad` is left out: a model's name is missing")),
        "{reported:?}"
    );
    assert!(reported.iter().any(|line| line.contains("`evict_costs` has no effect")), "{reported:?}");
    let routing = |uses: &str| {
        let text = format!(
            "{models}routing:\n  router:\n    use: {uses}\n    settings:\n      matrix: {matrix}\n      groups: {{g: {{members: [a]}}}}\n"
        );
        let roster = read(&text);
        let company = &roster.models[0].company;
        (company.sets.is_some(), company.group.is_some())
    };
    assert_eq!((routing("matrix"), routing("group")), ((true, false), (false, true)));
}

#[test]
fn a_selector_is_a_name_of_its_first_target() {
    let text = "models:\n  a: {cmd: 'p ${PORT}'}\n  b: {cmd: 'p ${PORT}'}\nselectors:\n  coder: {strategy: warm, targets: [peer/x, b, a]}\n  \
                plan: {strategy: pin, targets: [a]}\n  none: {targets: [z]}\nprofiles: {x: {pins: {a: b}}}\n";
    let roster = read(text);
    assert_eq!(
        (&roster.models[1].aliases[..], &roster.models[0].aliases[..]),
        (&["coder".to_owned()][..], &["plan".to_owned()][..])
    );
    let reported = reported(&roster);
    assert!(
        reported.iter().any(|line| line.contains("requests for `coder` go to `b` alone")),
        "{reported:?}"
    );
    assert!(reported.iter().any(|line| line.contains("the selector `none` names no model")), "{reported:?}");
}

#[test]
fn an_engine_elsewhere_is_routed_to_and_reported_once() {
    let model =
        |name: &str, cmd: &str, proxy: &str| format!("  {name}:\n    cmd: {cmd}\n    proxy: {proxy}\n");
    let text = format!(
        "models:\n{}{}{}{}{}",
        model("two", "p --bind 127.0.0.2 ${PORT}", "http://127.0.0.2:${PORT}"),
        model("six", "p --port ${PORT}", "http://[::1]:${PORT}"),
        model("box", "docker compose up box", "http://box:8000"),
        model("far", "ssh far llama-server -m /m.gguf -c 8k", "http://192.168.1.5"),
        model("vllm", "ssh far vllm serve m --gpu-memory-utilization 0.9", "http://far:8000"),
    );
    let mut roster = read(&text);
    assert_eq!(names(&roster).1, [""; 0]);
    let address = |at: usize| roster.models[at].launch.address(7).unwrap();
    assert_eq!(address(0), ProxyAddress::Loopback("127.0.0.2:7".to_owned()));
    assert_eq!(address(1), ProxyAddress::Loopback("[::1]:7".to_owned()));
    assert_eq!(address(2), ProxyAddress::Elsewhere("box:8000".to_owned()));
    assert_eq!(address(3), ProxyAddress::Elsewhere("192.168.1.5:80".to_owned()));
    let foreign: Vec<bool> = roster.models.iter().map(ConfiguredModel::is_foreign).collect();
    assert_eq!(foreign, [false, false, true, true, true]);
    assert!(roster.models[3].launch.options().is_none() && roster.models[4].part().is_none());
    roster.notify_ports();
    let reported = reported(&roster);
    let of_foreign: Vec<&String> = reported.iter().filter(|line| line.contains("other hosts")).collect();
    assert_eq!(of_foreign.len(), 1, "{reported:?}");
    assert!(of_foreign[0].contains("requests for `box`, `far`, `vllm` go to other hosts"), "{of_foreign:?}");
    let host = "llama-server --host 127.0.0.2 --port ${PORT} -m /m.gguf";
    let mut own = read(&format!("models:\n{}", model("a", host, "http://127.0.0.2:${PORT}")));
    own.confine();
    let Launch::Command { argv, options, .. } = &own.models[0].launch else { panic!("a command") };
    assert!(
        argv.contains(&"127.0.0.2".to_owned()) && options.is_some(),
        "it listens where requests go, and is planned"
    );
    for (proxy, why) in
        [("https://x", "begins with https://"), ("http://x/v1", "has a path"), ("x:1", "is not the address")]
    {
        let roster = read(&format!("models:\n{}", model("a", "p ${PORT}", proxy)));
        let refused = roster.refused[0].error.to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn one_bad_entry_is_one_model_and_the_file_is_served() {
    let bad = [
        ("cmd: p ${PORT} ${nothing}", "there is no such macro"),
        ("cmd: p ${PORT} ${env.NOTHING}", "the variable is not set"),
        ("cmd: p ${PORT} ${of_env}", "the variable is not set"),
        ("cmd: p 'x ${PORT}", "a quotation mark is not closed"),
        ("ttl: 5", "has no command"),
        ("cmd: p", "`cmd` does not use `${PORT}`"),
        ("{cmd: 'p ${PORT}', ttl: soon}", "`soon` is not a valid value for `ttl`"),
        ("{cmd: 'p ${PORT}', aliases: [good]}", "the name `good` is already used"),
        ("{cmd: 'p ${PORT}', macros: {'a b': 1}}", "the name is not valid"),
        ("{cmd: 'p ${PORT}', env: [A]}", "a variable has no `=`"),
        ("just text", "its settings below it"),
        ("{cmd: 'p ${PORT}', proxy: 'https://x'}", "begins with https://"),
        ("{cmd: 'llama-server --port ${PORT} -m m -c 8k'}", "llama-server reads this as 8"),
        ("{cmd: 'p ${PORT}', filters: {setParamsByID: {'${no}:x': {a: 1}}}}", "there is no such macro"),
    ];
    for (entry, why) in bad {
        let entry = if entry.starts_with('{') { format!(" {entry}") } else { format!("\n    {entry}") };
        let text = format!(
            "macros: {{of_env: '${{env.NOTHING}}'}}\nmodels:\n  good: {{cmd: 'p ${{PORT}}'}}\n  bad:{entry}\n  fine: {{cmd: 'q ${{PORT}}'}}\n"
        );
        let roster = read(&text);
        assert_eq!(names(&roster), (vec!["good", "fine"], vec!["bad"]), "{text}");
        let refused: Vec<String> = roster.refused[0].errors().map(ToString::to_string).collect();
        assert!(refused.iter().any(|line| line.contains(why)), "{refused:?}");
        // A command that is to have no mistakes at all still tells it.
        let whole: Result<Configuration, ConfigMistakes> = roster.whole();
        assert!(whole.unwrap_err().to_string().contains(why));
    }
    let fault =
        plimsoll_config::parse_each("c.yaml", "apiKeys: ['${env.NO}']\nmodels: {}\n", &|_| None).unwrap_err();
    assert!(
        fault.to_string().contains("the variable is not set"),
        "a key that is missing would open the server"
    );
}

#[test]
fn a_containers_llama_server_is_planned_by_the_paths_of_the_host() {
    let text = r"
models:
  dock:
    cmd: docker run --rm -v /opt/models:/models:ro -p 127.0.0.1:${PORT}:8080 some/image:rocm llama-server --model /models/x.gguf --port 8080 --host 0.0.0.0 --ctx-size 131072
  image:
    cmd: |
      docker run --name ${MODEL_ID} --init --rm -p ${PORT}:8080 --device nvidia.com/gpu=all -v /mnt/nvme/models:/models
      ghcr.io/ggml-org/llama.cpp:server --model '/models/q.gguf'
  inside:
    cmd: podman run -p ${PORT}:8080 -v models:/models ghcr.io/ggml-org/llama.cpp:server -m /models/x.gguf
";
    let roster = read(text);
    let options = |at: usize| roster.models[at].launch.options();
    assert_eq!(options(0).unwrap().text("--model"), Some("/opt/models/x.gguf"));
    assert_eq!(options(0).unwrap().text("--ctx-size"), Some("131072"));
    assert_eq!(options(1).unwrap().text("--model"), Some("/mnt/nvme/models/q.gguf"));
    assert!(options(2).is_none());
    assert!(!roster.models[1].launch.is_own_llama_server());
    let Launch::Command { argv, .. } = &roster.models[0].launch else { panic!("a command") };
    assert!(argv.contains(&"/models/x.gguf".to_owned()), "the command itself stays as it is");
    let reported = reported(&roster);
    assert!(
        reported
            .iter()
            .any(|line| line
                .contains("/models/x.gguf of `inside` lies in its container's image or in a volume")),
        "{reported:?}"
    );
}
