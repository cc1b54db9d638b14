//! Finds adapters (LoRA) that flags name and that are not on this machine.

use std::path::Path;

use plimsoll_base::Reason;
use plimsoll_flags::{Options, ProgramKind};

/// A doubt about each adapter that is missing, by its path.
pub fn missing_adapters(options: &Options) -> Vec<Reason> {
    let params = options.params(ProgramKind::LlamaServer);
    let adapters = params.map(|params| params.adapters).unwrap_or_default();
    let missing = adapters.into_iter().filter(|path| !Path::new(path).exists());
    let stated = |path: String| {
        let text = format!(
            "the adapter {path} is not on this machine, so neither its size nor its need is known; where it is \
                missing, llama-server does not start"
        );
        Reason::new("adapter_missing", text).fact("path", path)
    };
    missing.map(stated).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_that_is_not_there_is_named() {
        let options = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Options::from_argv(&words).unwrap()
        };
        let stated = missing_adapters(&options(
            "-m m.gguf --lora /nowhere/a.gguf,/ --lora-scaled /nowhere/b.gguf:0.5",
        ));
        let paths: Vec<&str> = stated.iter().map(|reason| reason.text.as_str()).collect();
        assert_eq!(paths.len(), 2, "{paths:?}");
        assert!(
            paths[0].contains("/nowhere/a.gguf") && paths[1].contains("/nowhere/b.gguf is not"),
            "{paths:?}"
        );
    }
}
