//! Builds the command line of the engine that `plan --exact` runs: the user's flags, except those with side
//! effects.
//!
//! Flags that open a listener, change the log, write files or start programs are left out or replaced.

use std::path::absolute;

use plimsoll_flags::table::FlagClass;
use plimsoll_flags::{FlagValue, Options, Setting};

use super::run::Until;

/// Flags without an effect on memory that act outside the process, or hide the log lines this crate reads.
#[rustfmt::skip]
const LEFT_OUT: [&str; 23] = [
    // The log flags would move or reformat the lines that the transcript parser reads. `--sleep-idle-seconds`
    // would unload the model in the middle of a run.
    "--log-disable", "--log-file", "--log-prompts-dir", "--log-colors", "--log-prefix", "--log-timestamps",
    "--verbose", "--verbosity", "--warmup", "--offline", "--path", "--tools", "--tools-runtime",
    "--mcp-servers-config", "--mcp-servers-json", "--agent", "--ui-mcp-proxy", "--slot-save-path",
    "--lookup-cache-dynamic", "--reuse-port", "--api-key-file", "--prio", "--sleep-idle-seconds",
];

/// The engine's command line for the user's flags, on `devices` where these name none. `listening` says where
/// it listens, and `stand_in` maps the path of each model file to the path to use instead.
pub(super) fn arguments<E>(
    options: &Options,
    devices: &str,
    listening: &[String],
    mut stand_in: impl FnMut(&str) -> Result<String, E>,
) -> Result<Vec<String>, E> {
    let kept = options.settings().iter().filter(|setting| is_kept(setting));
    let settings: Options = kept.map(|setting| replaced(setting, &mut stand_in)).collect::<Result<_, E>>()?;
    let mut arguments = settings.to_argv();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(|&word| word.to_owned()));
    let has = |effect| settings.settings().iter().any(|setting| setting.flag.effect == effect);
    // Without `-dev`, llama.cpp uses the devices of every backend that it loads, not only of one.
    if !has(FlagClass::Devices) {
        add(&["-dev", devices]);
    }
    // llama-server fits the model to free memory by default in newer builds; that changes the answer.
    if !has(FlagClass::Fit) {
        add(&["-fit", "off"]);
    }
    // A projector logs its compute buffer only during warm-up, so that stays on where there is one.
    if !has(FlagClass::Projector) {
        add(&["--no-warmup"]);
    }
    // 4 is the log level at which every supported build prints its buffers.
    add(&["-lv", "4"]);
    arguments.extend_from_slice(listening);
    Ok(arguments)
}

/// The log event after which an engine with these flags has reported every buffer.
pub(super) fn until(options: &Options) -> Until {
    use FlagClass::*;
    // Each of these loads files or makes contexts after the first context.
    const MORE: [FlagClass; 8] =
        [Projector, Draft, DraftRemote, Speculation, Bundle, Adapters, ScaledAdapters, ControlVectors];
    let loads_more = options.settings().iter().any(|setting| MORE.contains(&setting.flag.effect));
    if loads_more { Until::Ready } else { Until::Context }
}

fn is_kept(setting: &Setting) -> bool {
    let flag = setting.flag;
    flag.effect != FlagClass::Router && !flag.names.iter().any(|name| LEFT_OUT.contains(name))
}

/// The setting, with every file path in it mapped by `stand_in`.
fn replaced<E>(
    setting: &Setting,
    stand_in: &mut impl FnMut(&str) -> Result<String, E>,
) -> Result<Setting, E> {
    let FlagValue::Text(text) = &setting.value else { return Ok(setting.clone()) };
    let text = match setting.flag.effect {
        FlagClass::Model | FlagClass::Draft | FlagClass::Projector => stand_in(text)?,
        FlagClass::Adapters => each(text, |path| stand_in(path))?,
        FlagClass::ScaledAdapters | FlagClass::ControlVectors => each(text, |field| scaled(field, stand_in))?,
        _ if names_file(setting) => from_root(text),
        _ => return Ok(setting.clone()),
    };
    Ok(Setting { value: FlagValue::Text(text), ..setting.clone() })
}

/// True for a flag whose value is the path of another file or folder.
fn names_file(setting: &Setting) -> bool {
    let endings = ["-file", "-path", "-dir", "-static"];
    setting.flag.names.iter().any(|name| endings.iter().any(|ending| name.ends_with(ending)))
}

/// The path from the root, because the engine runs in a folder of its own.
fn from_root(path: &str) -> String {
    let absolute = absolute(path).ok().filter(|path| path.exists());
    absolute.and_then(|path| path.to_str().map(str::to_owned)).unwrap_or_else(|| path.to_owned())
}

fn each<E>(list: &str, change: impl FnMut(&str) -> Result<String, E>) -> Result<String, E> {
    let fields: Result<Vec<String>, E> = list.split(',').map(change).collect();
    Ok(fields?.join(","))
}

/// Maps the path of a field such as `style.gguf:0.5`, and keeps the scale after the last colon.
fn scaled<E>(field: &str, stand_in: &mut impl FnMut(&str) -> Result<String, E>) -> Result<String, E> {
    // A path may hold a colon of its own, so only a number after the last one is a scale.
    match field.rsplit_once(':').filter(|(_, scale)| scale.parse::<f32>().is_ok()) {
        Some((path, scale)) => Ok(format!("{}:{scale}", stand_in(path)?)),
        None => stand_in(field),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn given(line: &str, devices: &str) -> String {
        let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let options = Options::from_argv(&argv).unwrap();
        let stand_in = |path: &str| Ok::<_, Infallible>(format!("/copy{path}"));
        let listening = ["--host", "/t/s.sock"].map(str::to_owned);
        arguments(&options, devices, &listening, stand_in).unwrap().join(" ")
    }

    #[test]
    fn flags_for_listening_logging_and_tools_are_removed() {
        let line = "-m /a.gguf --port 8080 --host 0.0.0.0 --api-key k --log-file /x --tools all --warmup -c 4096 --verbose";
        assert_eq!(
            given(line, "CUDA0"),
            "--model /copy/a.gguf --ctx-size 4096 -dev CUDA0 -fit off --no-warmup -lv 4 --host /t/s.sock"
        );
    }

    #[test]
    fn every_model_file_is_replaced() {
        let line = "-m /a.gguf -md /d.gguf --mmproj /p.gguf --lora /x.gguf,/y.gguf --lora-scaled /z.gguf:0.5 \
                    --control-vector /v.gguf";
        assert_eq!(
            given(line, "CUDA0,CUDA1"),
            "--model /copy/a.gguf --model-draft /copy/d.gguf --mmproj /copy/p.gguf --lora /copy/x.gguf,/copy/y.gguf \
             --lora-scaled /copy/z.gguf:0.5 --control-vector /copy/v.gguf -dev CUDA0,CUDA1 -fit off -lv 4 --host /t/s.sock"
        );
    }

    #[test]
    fn a_file_that_is_named_from_the_current_folder_is_found_from_any_other() {
        let stated = given("-m /a.gguf --chat-template-file Cargo.toml --grammar-file none.gbnf", "CUDA0");
        let here = std::env::current_dir().unwrap();
        let found =
            format!("--chat-template-file {} --grammar-file none.gbnf", here.join("Cargo.toml").display());
        assert!(stated.contains(&found), "{stated}");
    }

    #[test]
    fn user_flags_for_devices_and_fit_are_kept() {
        let stated = given("-m /a.gguf -dev CUDA1 -fit on", "CUDA0,CUDA1");
        assert!(stated.starts_with("--model /copy/a.gguf --device CUDA1 --fit on --no-warmup"), "{stated}");
        assert!(!stated.contains("-dev CUDA0") && !stated.contains("off"), "{stated}");
    }
}
