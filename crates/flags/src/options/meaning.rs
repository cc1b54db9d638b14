//! Converts flags to model parameters ([`ModelParams`]), in the order in which they are given.

use super::{Options, Setting};
use crate::failure::FlagError;
use crate::given::{GivenFlag, is_of_fork};
use crate::params::ModelParams;
use crate::program::ProgramKind;
use crate::table::{FlagArity, KnownFlag};
use crate::value::FlagValue;
use crate::warning::Warning;

impl Options {
    /// The parameters that the settings give `program`, its defaults filled in.
    pub fn params(&self, program: ProgramKind) -> Result<ModelParams, FlagError> {
        let mut params = ModelParams::of(program);
        self.set(&mut params)?;
        Ok(params)
    }

    fn set(&self, params: &mut ModelParams) -> Result<(), FlagError> {
        for Setting { flag, value, origin } in self.settings() {
            if let Some(flags) = flag.stands_for {
                let words: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
                Self::from_argv(&words)?.set(params)?;
            }
            // Flags without a setter do not change memory; they are only passed on.
            if let Some(setter) = flag.setter {
                let flag = flag.name();
                setter(params, &GivenFlag { flag, value, origin })?;
            }
        }
        Ok(())
    }

    /// Flags that have another effect than it seems.
    pub fn remarks(&self) -> Vec<Warning> {
        let remark = |setting: &Setting| gone(setting).or_else(|| uncounted(setting));
        self.settings().iter().filter_map(remark).collect()
    }
}

/// Such a flag makes today's llama-server exit with an error.
fn gone(setting: &Setting) -> Option<Warning> {
    if setting.flag.takes == FlagArity::OptionalValue && setting.value == FlagValue::Bare {
        let name = setting.flag.name();
        let what = format!("llama-server does not start with {name} alone");
        let hint = format!(
            "write `{name} on`, unless your engine is ik_llama.cpp or a llama.cpp from before September 2025"
        );
        return Some(Warning::new(setting.origin.clone(), what).hint(hint));
    }
    let KnownFlag::Before(instead) = setting.flag.known else {
        return None;
    };
    let what = format!("llama-server no longer has the flag {}", setting.flag.name());
    Some(Warning::new(setting.origin.clone(), what).hint(instead))
}

/// A cache of a fork's own type.
fn fork_cache(setting: &Setting) -> Option<Warning> {
    const CACHES: [&str; 4] =
        ["--cache-type-k", "--cache-type-v", "--cache-type-k-draft", "--cache-type-v-draft"];
    let FlagValue::Text(name) = &setting.value else { return None };
    let of_fork = CACHES.iter().any(|flag| setting.flag.names.contains(flag)) && is_of_fork(name);
    of_fork.then(|| {
        let what = format!(
            "the size of the cache type {name} of a fork is unknown; the plan counts f16, which is the most that it takes"
        );
        let hint = "set the model's `memory`, or ask the engine with `plimsoll plan --exact=ENGINE`";
        Warning::new(setting.origin.clone(), what).hint(hint)
    })
}

/// A flag that changes a model's memory in a way that no formula follows.
fn uncounted(setting: &Setting) -> Option<Warning> {
    if let Some(warning) = fork_cache(setting) {
        return Some(warning);
    }
    let hint = match setting.flag.name() {
        "--moe-cache-mib" => "set the model's `memory`, with this cache in it",
        "--kv-unified-per-slot" => "give `--ctx-size` as well",
        "--fit-margin"
        | "--merge-qkv"
        | "--merge-up-gate-experts"
        | "--k-cache-hadamard"
        | "--v-cache-hadamard" => "set the model's `memory` where a measured figure differs",
        _ => return None,
    };
    let what = format!("the formulas of a plan do not count {}", setting.flag.name());
    Some(Warning::new(setting.origin.clone(), what).hint(hint))
}

#[cfg(test)]
mod tests {
    use plimsoll_model::{Pooling, types};

    use super::*;
    use crate::table::FlagClass;
    use crate::{BufferOverride, FlashAttention, GpuLayers, Parallel, RemoteSource, SplitMode};

    fn options(line: &str) -> Options {
        let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::from_argv(&argv).unwrap()
    }

    fn params(line: &str) -> ModelParams {
        options(line).params(ProgramKind::LlamaServer).unwrap()
    }

    fn refusal(line: &str) -> String {
        let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let params = Options::from_argv(&argv).and_then(|options| options.params(ProgramKind::LlamaServer));
        params.unwrap_err().to_string()
    }

    #[test]
    fn nothing_given_is_the_default_of_the_program() {
        assert_eq!(params(""), ModelParams::of(ProgramKind::LlamaServer));
        assert_eq!(ModelParams::of(ProgramKind::LlamaServer).parallel, Parallel::Auto);
        assert_eq!(ModelParams::of(ProgramKind::LlamaCli).parallel, Parallel::Count(1));
    }

    #[test]
    fn a_usual_command_line_is_understood() {
        let params = params(
            "-m a.gguf -c 8192 -b 1024 -ub 256 -np 2 -kvu -ctk q8_0 -ctv q4_0 -fa on -ngl 40 -sm row \
             -ts 3,1 -mg 1 -dev CUDA0,CUDA1 -nkvo --no-op-offload --swa-full --no-mmap -mm p.gguf",
        );
        assert_eq!(params.model.as_deref(), Some("a.gguf"));
        assert_eq!((params.context, params.batch, params.micro_batch), (8192, 1024, 256));
        assert_eq!((params.parallel, params.unified_cache), (Parallel::Count(2), Some(true)));
        assert_eq!((params.cache_key, params.cache_value), (types::Q8_0, types::Q4_0));
        assert_eq!(params.flash_attention, FlashAttention::On);
        assert_eq!((params.gpu_layers, params.split_mode), (GpuLayers::Count(40), SplitMode::Row));
        assert_eq!((params.tensor_split, params.main_gpu), (vec![3.0, 1.0], Some(1)));
        assert_eq!(params.devices, ["CUDA0", "CUDA1"]);
        assert!(!params.cache_offload && !params.op_offload && params.full_sliding_cache && !params.mmap);
        assert_eq!(params.projector.as_deref(), Some("p.gguf"));
    }

    #[test]
    fn the_last_of_two_wins_and_overrides_add_up() {
        let params = params("-c 1 --ctx_size 2 -ot a=CPU,b=CUDA1 -ot c=CPU -ncmoe 3 -ncmoe 2");
        assert_eq!((params.context, params.experts_on_host), (2, 3));
        let pairs: Vec<_> = params
            .overrides
            .iter()
            .map(|BufferOverride { pattern, buffer }| (pattern.as_str(), buffer.as_str()))
            .collect();
        assert_eq!(pairs, [("a", "CPU"), ("b", "CUDA1"), ("c", "CPU")]);
    }

    #[test]
    fn layers_are_a_number_or_auto_or_all() {
        for (text, layers) in [
            ("auto", GpuLayers::Auto),
            ("-1", GpuLayers::Auto),
            ("all", GpuLayers::All),
            ("-2", GpuLayers::All),
            ("99", GpuLayers::Count(99)),
        ] {
            assert_eq!(params(&format!("-ngl {text}")).gpu_layers, layers, "{text}");
        }
    }

    #[test]
    fn flash_attention_may_stand_alone_as_it_once_did() {
        for (line, attention) in [
            ("-fa", FlashAttention::On),
            ("-fa -c 5", FlashAttention::On),
            ("-fa 1", FlashAttention::On),
            ("-fa -1", FlashAttention::Auto),
            ("-fa auto", FlashAttention::Auto),
            ("-fa disabled", FlashAttention::Off),
            ("-nfa", FlashAttention::Off),
        ] {
            assert_eq!(params(line).flash_attention, attention, "{line}");
        }
    }

    #[test]
    fn flags_of_newer_builds_are_known_and_count_where_a_formula_can() {
        let dense = params("--n-cpu-ffn 2").overrides;
        assert_eq!(dense[0].pattern, r"blk\.(0|1)\.ffn_(up|down|gate)\.");
        assert!(params("--n-cpu-ffn 0").overrides.is_empty());
        assert!(params("--n-cpu-ffn 2147483647").overrides[0].pattern.len() < 8192);
        for (line, reported) in
            [("--moe-cache-mib 512", 1), ("--kv-unified-per-slot 4096", 1), ("--lazy-mode on", 0)]
        {
            assert_eq!(options(line).remarks().len(), reported, "{line}");
        }
    }

    #[test]
    fn a_model_from_a_repository_is_not_local() {
        let params = params("-hf ggml-org/gemma-3-4b-it-GGUF:Q4_K_M");
        assert_eq!(params.model, None);
        assert_eq!(params.remote, Some(RemoteSource::Hub("ggml-org/gemma-3-4b-it-GGUF:Q4_K_M".to_owned())));
    }

    #[test]
    fn speculation_is_understood_under_both_spellings() {
        for line in [
            "--spec-draft-model d.gguf --spec-draft-n-max 8 --spec-draft-ngl all --spec-draft-type-k q8_0",
            "-md d.gguf --draft-max 8 -ngld all -ctkd q8_0",
        ] {
            let params = params(line);
            assert_eq!(params.draft_model.as_deref(), Some("d.gguf"), "{line}");
            assert_eq!((params.draft_tokens, params.draft_gpu_layers), (8, GpuLayers::All), "{line}");
            assert_eq!(params.draft_cache_key, types::Q8_0, "{line}");
        }
        assert_eq!(params("--spec-type draft-mtp,ngram-mod").speculation, ["draft-mtp", "ngram-mod"]);
        assert_eq!(
            options("--draft-max 8").remarks()[0].to_string(),
            "command line: llama-server no longer has the flag --draft-max; use --spec-draft-n-max or \
                --spec-ngram-mod-n-max"
        );
    }

    /// Flags and cache types of forks are no fault of a command line: a plan says what it does not count.
    #[test]
    fn fork_only_flags_are_remarked_on_and_not_rejected() {
        let line = "-m m.gguf --fit --fit-margin 512 --k-cache-hadamard --v-cache-hadamard --merge-qkv \
                    --parallel-tool-calls -ctk turbo2 -ctv q8_KV -c 8192";
        let given = params(line);
        assert!(given.fit && given.context == 8192);
        assert_eq!((given.cache_key, given.cache_value), (types::F16, types::F16));
        let stated: Vec<String> = options(line).remarks().iter().map(ToString::to_string).collect();
        for word in ["--merge-qkv", "--k-cache-hadamard", "turbo2", "q8_KV", "plan --exact", "`memory`"] {
            assert!(stated.iter().any(|line| line.contains(word)), "{word}: {stated:?}");
        }
        assert!(options("-ctk turbo").params(ProgramKind::LlamaServer).is_err());
    }

    #[test]
    fn servers_of_other_machines_and_drafts_of_ngrams_are_kept() {
        assert_eq!(params("--rpc a:50052,b:50052").rpc_servers, ["a:50052", "b:50052"]);
        let params = params("--spec-default --spec-ngram-mod-n-max 32");
        assert_eq!((params.speculation, params.ngram_tokens.modular), (vec!["ngram-mod".to_owned()], 32));
    }

    #[test]
    fn a_bundle_sets_what_it_stands_for() {
        let oss = params("--gpt-oss-20b-default");
        assert_eq!(oss.remote, Some(RemoteSource::Hub("ggml-org/gpt-oss-20b-GGUF".to_owned())));
        assert_eq!((oss.context, oss.batch, oss.micro_batch), (262_144, 32_768, 2048));
        assert_eq!(oss.parallel, Parallel::Count(2));
        for flag in crate::table::FLAGS.iter().filter(|flag| flag.effect == FlagClass::Bundle) {
            assert!(params(flag.name()).remote.is_some(), "{}", flag.name());
        }
    }

    #[test]
    fn a_refusal_names_place_flag_and_remedy() {
        for (line, message) in [
            ("-m a --ctx-sise 5", "command line: unknown flag `--ctx-sise`; did you mean --ctx-size?"),
            ("-m a -c", "command line: -c needs a value; write `-c VALUE`"),
            (
                "-c many",
                "command line: `many` is not a valid value for --ctx-size; write a whole number from 0 to 2147483647",
            ),
            (
                "-c -5",
                "command line: `-5` is not a valid value for --ctx-size; write a whole number from 0 to 2147483647",
            ),
            (
                "-c 99999999999",
                "command line: `99999999999` is not a valid value for --ctx-size; write a whole number from 0 to 2147483647",
            ),
            ("-c 8k -b 2048", "command line: `-c 8k`: llama-server reads this as 8; write `-c 8192`"),
            (
                "-np 0",
                "command line: `0` is not a valid value for --parallel; write a number of at least 1, or -1 for \
                    automatic",
            ),
            (
                "-ot CPU",
                "command line: `CPU` is not a valid value for --override-tensor; write PATTERN=BUFFER, e.g. \"exps=CPU\"",
            ),
            (
                "-ts ,1",
                "command line: `,1` is not a valid value for --tensor-split; write up to 15 proportions of at least 0, \
                    e.g. 3,1",
            ),
            (
                "--n-cpu-moe=20",
                "command line: unknown flag `--n-cpu-moe=20`; write the value as a separate argument: `--n-cpu-moe 20`",
            ),
            (
                "-c4096",
                "command line: unknown flag `-c4096`; write the value as a separate argument: `-c 4096`",
            ),
            ("-c=", "command line: unknown flag `-c=`; write the value as a separate argument: `-c VALUE`"),
            (
                "-fa maybe",
                "command line: `maybe` is not a valid value for --flash-attn; write one of on, off and auto",
            ),
        ] {
            assert_eq!(refusal(line), message, "{line}");
        }
        assert!(
            refusal("-ctk q4_K")
                .ends_with("write one of f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0 and q5_1")
        );
    }

    #[test]
    fn the_environment_is_read_as_llama_server_reads_it_and_argv_wins() {
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let env = Options::from_env(pairs(&[
            ("LLAMA_ARG_CTX_SIZE", "4096"),
            ("LLAMA_ARG_NO_MMAP", "whatever"),
            ("LLAMA_ARG_SWA_FULL", "0"),
            ("LLAMA_ARG_UBATCH", "64"),
            ("PATH", "/bin"),
        ]))
        .unwrap();
        let both = options("-c 8192").merged_over(&env).params(ProgramKind::LlamaServer).unwrap();
        assert_eq!((both.context, both.micro_batch), (8192, 64));
        assert!(!both.mmap && !both.full_sliding_cache);
        let error = Options::from_env(pairs(&[("LLAMA_ARG_KV_UNIFIED", "perhaps")])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "environment variable LLAMA_ARG_KV_UNIFIED: `perhaps` is not a valid value for --kv-unified; write 1 or 0"
        );
    }

    #[test]
    fn every_row_with_a_setter_changes_the_options() {
        let values = ["7", "off", "on", "x=CPU", "a:1", "q4_1", "row", "none", "draft-mtp"];
        for flag in crate::table::FLAGS.iter() {
            if flag.setter.is_none() {
                continue;
            }
            let projector = "-mm p.gguf";
            let before = params(projector);
            let lines = match flag.takes {
                FlagArity::Nothing => vec![flag.name().to_owned()],
                FlagArity::Switch => vec![flag.name().to_owned(), flag.negations[0].to_owned()],
                _ => values.iter().map(|value| format!("{} {value}", flag.name())).collect(),
            };
            let changes = lines.iter().any(|line| {
                let argv: Vec<String> = format!("{projector} {line}").split(' ').map(str::to_owned).collect();
                Options::from_argv(&argv)
                    .and_then(|options| options.params(ProgramKind::LlamaServer))
                    .is_ok_and(|after| after != before)
            });
            assert!(changes, "{}", flag.name());
        }
    }

    #[test]
    fn pooling_is_named_or_what_ranks_has() {
        assert_eq!(params("--embeddings").pooling, None);
        assert_eq!(params("--embeddings --pooling last").pooling, Some(Pooling::Last));
        let ranks = params("--reranking");
        assert!(ranks.embeddings && ranks.pooling == Some(Pooling::Rank));
        let error = refusal("--pooling most");
        assert!(error.to_string().contains("one of none, mean, cls, last and rank"), "{error}");
    }
}
