//! What is done about it, and whether it helped.

use super::words::Words;

pub(super) const LESS: Words = Words(
    "instead|only |down to|enabl|512|1024|2048|4096|8192|16384|reduc|lower|decreas|smaller|less |fewer|limit|\
    cut|set |setting|drop|shorter|halv|disabl",
);
pub(super) const CONTEXT: Words = Words(
    "context|ctx|num_ctx|max_model_len|max-model-len|max_seq_len|max-seq-len|kv cache|kv-cache|n_ctx|-c |\
    max_position|sequence length|max length|max_num_seqs|max-num-seqs|cache-type|kv quant|beam",
);
pub(super) const BATCH: Words = Words(
    "batch|ubatch|n_ubatch|-ub|resolution|image size|crop|tile|tiling|chunk|gradient checkpoint|micro|frames|\
    max_num_batched|max-num-batched|flash attention|flash-attention|activation|sched_max_copies|max_copies|\
    points",
);
pub(super) const MODEL: Words = Words(
    "smaller model|smaller quant|lower quant|quantiz|n-gpu-layers|ngl|gpu layers|gpu-layers|num_gpu|layers|\
    offload|4-bit|4bit|8-bit|int8|fp8|load_in_8bit|load_in_4bit|tensor parallel|tensor-parallel|device_map",
);
/// A choice that has no effect.
pub(super) const UNHEEDED: Words = Words(
    "ineffective|ignor|no effect|not applied|~n't apply|not picked up|overrid|overwritten|not honour|not honor|~n't honor|disregard|\
    bypass|not respect|~n't respect|not working|not work|~n't work|useless|does nothing|no influence|not take effect|not taken into|in vain",
);
pub(super) const PIECES: Words = Words(
    "expandable segments|expandable_segments|max_split_size|empty_cache|garbage_collection_threshold|\
    defragment",
);
pub(super) const NEEDED: Words = Words("without |needs|need |requires|unless");
pub(super) const CURES: Words = Words(
    "no oom|did it|did the trick|made it go|fix|work|help|solv|resolv|avoid|no longer|went away|goes away|\
    gone|succe|prevent|ok |okay|fine|loads|fits|recover|\
    happily",
);
pub(super) const CURED: Words = Words(
    "did it|did the trick|fix|solv|resolv|helped|helps|worked for me|goes away|went away|gone|workaround|\
    avoids|prevents|it works|then works|no more",
);
pub(super) const IN_VAIN: Words = Words(
    "helpless|useless|in vain|no use|nothing help|only in|but all|made no difference|makes no difference|without success|to no |didn't|did not|doesn't|does not|don't help|not help|not work|not solve|no effect|no avail|no success|\
    no luck|still |same error|same result|isn't|won't|no matter|regardless|nor |neither",
);
