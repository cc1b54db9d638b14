//! What people tell, sentence by sentence: things that mean something only where several words stand together.
//!
//! DECISION: a report is prose in part, and prose has no fixed phrases. A sentence is what English is written in (one of its small words, no
//! line of a program); it says a thing where each of several groups has a word in it. Only a short report is read this way.

use crate::diagnose::evidence::{Evidence, Quote, Source};
use crate::diagnose::line::shortened;
use crate::diagnose::saying::Saying;

/// A longer sentence is a dump.
const LONGEST: usize = 700;
/// Beginnings of words, one of which must be there, parted by `|`; with `~` it may stand in the middle of a word.
#[derive(Clone, Copy)]
struct Words(&'static str);

impl Words {
    fn count_in(self, sentence: &str) -> usize {
        self.0.split('|').filter(|word| is_in(word, sentence)).count()
    }

    fn are_in(self, sentence: &str) -> bool {
        self.0.split('|').any(|word| is_in(word, sentence))
    }
}

fn is_in(word: &str, sentence: &str) -> bool {
    match word.strip_prefix('~') {
        Some(part) => sentence.contains(part),
        None => sentence
            .match_indices(word)
            .any(|(at, _)| at > 0 && !sentence.as_bytes()[at - 1].is_ascii_alphanumeric()),
    }
}

/// Words that prose cannot do without.
const SMALL_WORDS: Words = Words(
    "the |a |an |is |are |was |i |i'm |we |my |it |it's |to |and |of |on |in |for |when |with |but |after |that |this |if |\
    not |by |from |while |then |even |there |be |has |have |does |only |still |at |each |all ",
);
/// Notes without small words are prose all the same.
const HELPED: Words = Words("ok |oom |fixes|fixed|works|worked|resolved|resolves|solved|solves|helped|helps");
/// Sentences of programs, which read like prose and are printed whatever the cause.
const OF_PROGRAMS: Words = Words(
    "try setting|see documentation for memory|tried to allocate|total capac|is reserved by pytorch|gpu_memory_utilization|gpu memory utilization|\
    cudamalloc failed|current device|internal assert failed|compile with|tf_gpu_allocator|device-side assertions|\
    asynchronously reported|to avoid fragmentation",
);

const MEMORY: Words = Words("~mb |~mib |~gb |~gib |memory|vram|ram |mib |mb |gb |gib |gpu mem|usage|gpumem");
const NOT: Words =
    Words("not |~n't |never|no longer|without|fail|unable|cannot|only after|only when|unless|refus");
const GIVE_BACK: Words = Words(
    "freed|not free|~n't free|never free|frees|to free|free up|be free|get free|releas|reclaim|unload|deallocat|give back|\
    given back|giving back|go down|goes down|went down|come down|comes down|drop back|drops back|go back|goes back|\
    return to|returns to|returned|return the|return memory|garbage|cleared|clear the|clean up|cleaned up|decreas|disappear",
);
const STAY: Words =
    Words("remain|stays|stay |stuck|still|kept |keeps |retain|linger|left behind|leftover|hold on");
const HELD: Words = Words(
    "occupied|allocated|in use|used|held|loaded|resident|higher|high |consum|in vram|in gpu|in memory|full ",
);
const LATER: Words =
    Words("after|even |when|once|until|despite|between|next|previous|finish|exit|clos|stop|delet|destroy");

const STRAY: Words = Words(
    "integrated gpu|rest of the gpus|both cards|all 4|all four|all visible|weaker|slower gpu|igpu|second gpu|secondary|excluded|first card|wrong gpu|wrong device|wrong card|other gpu|other card|another gpu|another card|another device|first gpu|default gpu|\
    default device|all gpus|all of the gpus|all available gpus|all visible gpus|every gpu|each gpu|both gpus|\
    multiple gpus|all cards|gpu other than|device other than|non-default|first visible|rank 0|rank0|gpu zero|unused gpu|\
    primary gpu",
);
const MEANT: Words = Words(
    "only use|want to|much more|more than|only one|instead of|than other|than the other|compared with|compared to|higher|why does|incorrectly|even if unused|unused|but |although|though|instead|despite|still|also |rather than|extra|additional|unexpected|unwanted|unintend|ignor|\
    regardless|always|even if|even when|even though|no matter|unnecessar|should |shouldn|wrong|not respect|~n't respect|\
    ~n't honor|only want|only use|whereas|yet |as well|default|all rank|all process|every rank|every process|each rank|\
    each process|every worker|all worker|each worker|all of the process|initializes",
);
const PRESENCE: Words = Words(
    "~mb |~mib |~gb |~gib |initiali|context|memory|vram|mib|mb |gb |process|alloc|uses |use |used |using |occup|runs on|run on|running on|load|tensor|\
    appear|goes to|went to|lands|landed|creates|created|places|placed",
);

const OTHER: Words = Words(
    "colleague|last one|last run|somebody|more than one|other |another|second |different|parallel|previous|old |stale|zombie|orphan|leftover|hung |dangling|background|\
    someone|somebody|neighbo|concurrent|simultaneous|multiple|two |both |several|existing|crashed|dead |python|jupyter|\
    notebook|desktop|browser|chrome|firefox|game|xorg|ollama|co-locat|colocat|shar",
);
const PROCESS: Words = Words(
    "ps shows|job|server|worker|child|process|program|instance|application|app |apps |container|user|job|session|kernel|notebook|service|pod |pods |tenant|\
    browser|game|desktop|chrome|xorg|pid |pids |script",
);
const TAKES: Words = Words(
    "owns|own |scheduled|on one |same |single |surviv|using|uses |use |used |hold|held|occup|hog|taking|taken|takes|consum|kill|stop|closed|closing|close |left|eat|ate |\
    grab|shar|reserv|terminat|restart|reboot|still running|already running|at the same time|alongside|full|not released|\
    competing|compete",
);
const ALIVE: Words = Words(
    "killed before|surviv|not killed|did not exit|left behind|had been killed|after kill|was killed|still running|still open|still alive|not been shut|was running|left running|hanging|was still|were still|kept running",
);
const CARD: Words = Words("nvidia-smi|gpu|vram|card|cuda|device|memory");

const BEGINS: Words =
    Words("chatting|text|fits|takes load|start|boot|init|works|runs|ran |worked|idle|short ");
const WELL: Words =
    Words("fine|ok |okay|success|without|correctly|normal|no problem|well |fits|clean|works|runs|worked");
const TURN: Words = Words("but |then |however|until|when|as soon|after|once|while|during|upon");
const ENDS: Words = Words(
    "kills|malloc fail|breaks|stops work|crash|oom|out of memory|out-of-memory|fail|die|error|abort|killed|exhaust|runs out|ran out",
);
const AT_WORK: Words = Words(
    "picture|photo|attach|document|paste|answer|reply|eval|vision|upload|prompt|request|inferenc|generat|chat|message|image|token|complet|query|queries|context|respon|conversation|decod|\
    prefill|long|embedding",
);

const LESS: Words = Words(
    "set to|instead|only down to|enabl|512|1024|2048|4096|8192|16384|reduc|lower|decreas|smaller|less |fewer|limit|cut|set |setting|drop|shorter|halv|disabl",
);
const CURES: Words = Words(
    "no oom|did it|did the trick|made it go|fix|work|help|solv|resolv|avoid|no longer|went away|goes away|gone|succe|prevent|ok |okay|fine|workaround|loads|fits|\
    recover",
);
const CONTEXT: Words = Words(
    "context|ctx|num_ctx|max_model_len|max-model-len|max_seq_len|max-seq-len|kv cache|kv-cache|n_ctx|-c |max_position|\
    sequence length|max length|max_num_seqs|max-num-seqs|cache-type|kv quant|beam",
);
const BATCH: Words = Words(
    "batch|ubatch|n_ubatch|-ub|resolution|image size|crop|tile|tiling|tiled|chunk|gradient checkpoint|micro|frames|\
    max_num_batched|max-num-batched|flash attention|flash-attention|activation|sched_max_copies|max_copies|points",
);
const MODEL: Words = Words(
    "smaller model|smaller quant|lower quant|quantiz|n-gpu-layers|ngl|gpu layers|gpu-layers|num_gpu|layers|offload|4-bit|\
    4bit|8-bit|int8|fp8|load_in_8bit|load_in_4bit|tensor parallel|tensor-parallel|device_map",
);
const PIECES: Words = Words(
    "expandable segments|expandable_segments|max_split_size|empty_cache|garbage_collection_threshold|defragment",
);

const KEEPS: Words = Words(
    "retain|still hold|still us|still tak|still occup|still alloc|still consum|remain|never come|never came|does not return|left in|stays in|stay in|\
    keeps hold|never gets|never go|does not drop|trapped|not come back|never get",
);
/// Cards that are named by what is wrong with them.
const MISPLACED: Words = Words(
    "wrong gpu|wrong device|wrong card|excluded gpu|unintended gpu|unused gpu|gpu that is not|gpu other than|device other than|unselected|\
    gpu i did not|not the gpu|not the one",
);
const DEEPER: Words = Words("context|prompt|conversation|history|kv |token|chat|input");
const LONGER: Words = Words(
    "climbs|rises|into the|k tokens|while the|as the|per 1k|per token|grows|growing|grow |longer|fills|filled|increas|deeper|larger|bigger|long |accumulat|scales",
);
const ASKED: Words = Words("buffer|pool|memory|vram|oom|out of memory|crash|fail|alloc");
const HALF_GONE: Words = Words(
    "ppid 1|half gone|zombie|orphan|defunct|dead process|crashed process|ghost process|crash leaves|still running a job",
);
const CURED: Words = Words(
    "did it|did the trick|fix|solv|resolv|helped|helps|worked for me|goes away|went away|gone|workaround|avoids|prevents|it works|then works|no more",
);
const ONCE: Words = Words("first|1st |one run|1 run|once|one image|1 image");
const AGAIN: Words = Words("second|2nd |subsequent|next|again|following|another run|after 1|after one|third");
const OUT: Words = Words("oom|out of memory|out-of-memory|exceed");
const HOLDS: Words = Words("reserved");
const LIVES: Words = Words("allocated");
const ONLY: Words = Words("but |only |while |though|whereas|of which");
/// What a computation is fed with; more of it needs more at once.
const FED: Words = Words(
    "frame|sample|point|image|pixel|residue|atom|nodes|patch|crop|slices|voxel|clip|seconds of|minutes of|hours of|1080p|720p|resolution|\
    steps|video|audio",
);
const MORE: Words = Words(
    "goes up|go up|went up|goes from|went from|grows|rises|increas|adds|added|climbs|leaves|left |more ",
);
const ROUNDS: Words = Words(
    "each|every|per |within|days|hours|steps|times|again and again|iteration|epoch|loop|cycle|over time|after some|after a few",
);
const FORMER: Words = Words("former|previous|old |earlier|last ");
const STAYS: Words = Words("stays|remains|stay |remain |kept |is still|are still|not removed|not unloaded");
const CLOSED: Words = Words("clos|stopp|stop |shut|quit|exit|unload");
const VISIBLE: Words = Words(
    "cuda_visible_devices|hip_visible_devices|rocr_visible_devices|gpu_device_ordinal|cuda_device_order",
);
const PICKED: Words = Words("picks|fixes|fixed|works|worked|solve|resolve|helps|helped|selects|correct");
const FIRST: Words = Words("first|long|large|big |bigger|longer|second");
const ASKING: Words = Words("request|prompt|message|reply|document|conversation|question");
const IN_VAIN: Words = Words(
    "didn't|did not|doesn't|does not|don't help|not help|not work|not solve|no effect|no avail|no success|no luck|still |same error|same result|isn't|won't|\
    no matter|regardless|nor |neither",
);
const ENDED: Words =
    Words("ends|ended|finish|exit|terminat|quit|stopped|is killed|was killed|ctrl-c|ctrl c|crash");
const RAN: Words = Words("program|process|python|script|training|job|code");
const NEEDED: Words = Words("without |needs|need |requires|unless");
const WANTED: Words = Words("want|only|chose|chosen|specif|select|set |put |meant|intend|assign");
/// The card on which everything lands that nobody placed.
const ON_FIRST: Words = Words(
    "on gpu 0|on gpu0|on gpu-0|in gpu 0|in gpu0|of gpu 0|of gpu0|on cuda:0|in cuda:0|to cuda:0|on device 0|on card 0|\
    on the first gpu|on the first card|on the first visible|on another gpu|of another gpu|on the other gpu|on every gpu|on each gpu|occupies gpu 0|occupy gpu 0",
);
const TABLE: Words = Words("kill -9|nvidia-smi|fuser|lsof|task manager|nvtop");
const NOBODY: Words = Words(
    "still occup|no such process|kill -9|no process|no running process|no other process|not show|~n't show|not list|~n't list|not appear|not see|\
    ~n't see|no pid|fuser|invisible|zombie|no compute process|not visible|without any process",
);
const IN_USE: Words = Words("in use|used|occup|taken|full|allocated|hold|held|consum|gone");
const BEFORE: Words = Words(
    "before the start|before start|before it start|before load|before run|before any|before launch|before i |before we |\
    already|at start|at boot|when idle|in idle|without running|nothing running|nothing is running",
);
const BEFORE_MODEL: Words = Words(
    "before any model|before the model|before a model|before loading|before any alloc|before anything|without a model|no model is loaded",
);
const AMOUNT: Words = Words("~mib|~ gb|~ mb|~gb |~mb |~gib|~% |most|much|full|some ");
const END_IT: Words = Words("kill|clos|stopp|stop |shut|terminat|quit|exit");
/// Programs that hold memory of a card, by name.
const PROGRAMS: Words = Words(
    "comfy|plex|ollama|vllm|whisper|stable diffusion|automatic1111|sd-webui|llama-server|llama-swap|llama cpp|lm studio|\
    frigate|blender|steam|obs |chrome|firefox|xorg|gnome|kde |wayland|desktop|game|jupyter|tabby|sglang|tensorflow|xtts|\
    browser|plex|jellyfin|immich|ffmpeg",
);
const TOGETHER: Words = Words(
    "same|shar|both|alongside|together|while|next to|beside|besides|concurrent|at the same time|already|parallel",
);

/// What a sentence says that has a word of each group.
const PATTERNS: &[(Saying, &[Words])] = &[
    (Saying::NotReleased, &[MEMORY, NOT, GIVE_BACK]),
    (Saying::NotReleased, &[MEMORY, STAY, HELD, LATER]),
    (Saying::NotReleased, &[MEMORY, KEEPS, LATER]),
    (Saying::NotReleased, &[MEMORY, FORMER, STAYS]),
    (Saying::GrowsEachRound, &[MEMORY, MORE, ROUNDS]),
    (Saying::Neighbour, &[CLOSED, PROGRAMS, CURES]),
    (Saying::StrayContext, &[VISIBLE, PICKED]),
    (Saying::GrowsWithDepth, &[FIRST, ASKING, OUT]),
    (Saying::Neighbour, &[END_IT, OTHER, PROCESS, CURED]),
    (Saying::Fragmented, &[HOLDS, LIVES, ONLY]),
    (Saying::Activations, &[FED, OUT]),
    (Saying::TakenBefore, &[HALF_GONE, CARD]),
    (Saying::TakenBefore, &[RAN, ENDED, CARD, NOT, GIVE_BACK]),
    (Saying::TakenBefore, &[RAN, ENDED, CARD, KEEPS]),
    (Saying::CuredByPieces, &[PIECES, NEEDED]),
    (Saying::TakenBefore, &[HALF_GONE, MEMORY]),
    (Saying::CuredByContext, &[CONTEXT, CURED]),
    (Saying::CuredByBatch, &[BATCH, CURED]),
    (Saying::GrowsWithDepth, &[DEEPER, LONGER, ASKED]),
    (Saying::Neighbour, &[OTHER, PROCESS, TAKES, CARD]),
    (Saying::Neighbour, &[END_IT, PROCESS, OTHER, CURES]),
    (Saying::TakenBefore, &[CARD, IN_USE, BEFORE, AMOUNT]),
    (Saying::Neighbour, &[OTHER, PROCESS, ALIVE]),
    (Saying::Neighbour, &[PROGRAMS, ALIVE, CARD]),
    (Saying::TakenBefore, &[ENDS, BEFORE_MODEL]),
    (Saying::NobodyShown, &[TABLE, NOBODY]),
    (Saying::CuredByContext, &[LESS, CONTEXT, CURES]),
    (Saying::CuredByBatch, &[LESS, BATCH, CURES]),
    (Saying::CuredByModel, &[LESS, MODEL, CURES]),
    (Saying::CuredByPieces, &[PIECES, CURES]),
];

/// Reads the prose of a report.
pub(super) fn read(evidence: &mut Evidence, source: Source, text: &str) {
    let mut before = String::new();
    for (line, paragraph) in (1..).zip(text.lines()) {
        for sentence in paragraph
            .split_inclusive(['!', '?'])
            .flat_map(|part| part.split(". "))
        {
            let folded = folded(sentence);
            if !is_prose(&folded) {
                continue;
            }
            let quote = Quote {
                source,
                line,
                text: shortened(sentence.trim()).to_owned(),
            };
            for saying in said(&folded) {
                evidence.note(saying, &quote);
            }
            // What goes well and what then does not are often told in two sentences.
            let both = format!("{before}{folded}");
            if [BEGINS, WELL, TURN, AT_WORK]
                .iter()
                .all(|words| words.are_in(&both))
                && ENDS.are_in(&folded)
            {
                evidence.note(Saying::GrowsWithDepth, &quote);
            }
            if [ONCE, AGAIN, ENDS].iter().all(|words| words.are_in(&both)) && ENDS.are_in(&folded) {
                evidence.note(Saying::FailsAgain, &quote);
            }
            // What is meant and what is, each in its own.
            let numbers = numbered_cards(&both);
            let two =
                numbers.iter().any(|number| *number != numbers[0]) && numbered_cards(&folded).len() == 1;
            if two
                && WANTED.are_in(&before)
                && PRESENCE.are_in(&folded)
                && !OUT.are_in(&both)
                && !GIVE_BACK.are_in(&both)
            {
                evidence.note(Saying::StrayContext, &quote);
            }
            before = folded;
        }
    }
}

/// All that a folded sentence says by itself.
fn said(sentence: &str) -> impl Iterator<Item = Saying> {
    let by_words = PATTERNS
        .iter()
        .filter(|(_, groups)| groups.iter().all(|words| words.are_in(sentence)));
    let programs = PROGRAMS.count_in(sentence) >= 2
        && TOGETHER.are_in(sentence)
        && (CARD.are_in(sentence) || CURES.are_in(sentence));
    let more = [
        (Saying::Neighbour, programs),
        (Saying::Activations, sentence.split(' ').any(is_resolution)),
        (Saying::StrayContext, is_stray(sentence)),
        (
            Saying::LongContext,
            CONTEXT.are_in(sentence) && sentence.split(' ').any(is_thousands),
        ),
    ];
    let in_vain = IN_VAIN.are_in(sentence);
    let by_words = by_words.map(move |(saying, _)| if in_vain { in_vain_of(*saying) } else { *saying });
    by_words.chain(
        more.into_iter()
            .filter(|(_, is_said)| *is_said)
            .map(|(saying, _)| saying),
    )
}

/// What did not help speaks against the cause that it would have cured.
fn in_vain_of(saying: Saying) -> Saying {
    match saying {
        Saying::CuredByBatch | Saying::CuredByContext | Saying::CuredByModel | Saying::CuredByPieces => {
            Saying::LessDidNotHelp
        }
        other => other,
    }
}

/// Small letters, one blank between words; marks that do not belong to a name are blanks.
fn folded(sentence: &str) -> String {
    let mut folded = String::from(" ");
    for letter in sentence.chars().take(LONGEST + 1) {
        let letter = match letter {
            '\u{2019}' => '\'',
            '\'' | '-' | '_' | ':' | '#' | '=' | '%' | '*' => letter,
            letter if letter.is_alphanumeric() => letter.to_ascii_lowercase(),
            _ => ' ',
        };
        if letter != ' ' || !folded.ends_with(' ') {
            folded.push(letter);
        }
    }
    folded.push(' ');
    folded
}

fn is_prose(sentence: &str) -> bool {
    let letters = sentence
        .bytes()
        .filter(|byte| byte.is_ascii_alphabetic() || *byte == b' ')
        .count();
    let plain = letters * 10 >= sentence.len() * 9 && sentence.split(' ').count() >= 6;
    let told = plain || SMALL_WORDS.are_in(sentence) || HELPED.are_in(sentence);
    told && sentence.len() <= LONGEST && !OF_PROGRAMS.are_in(sentence)
}

/// Something is on a card, and another was meant: two cards are numbered and set against each other, or it is said of the first or of all.
fn is_stray(sentence: &str) -> bool {
    let numbers = numbered_cards(sentence);
    let two = numbers.iter().any(|number| *number != numbers[0]);
    let marked =
        two || numbers.contains(&0) || STRAY.are_in(sentence) || sentence.contains("cuda_visible_devices");
    let lands = ON_FIRST.are_in(sentence) && PRESENCE.are_in(sentence);
    let unmeant = MISPLACED.are_in(sentence) || (marked && MEANT.are_in(sentence));
    (lands || unmeant && PRESENCE.are_in(sentence) && !OUT.are_in(sentence)) && !GIVE_BACK.are_in(sentence)
}

/// The numbers of `gpu 0`, `cuda:1`, `device #2`.
fn numbered_cards(sentence: &str) -> Vec<u8> {
    let mut numbers = Vec::new();
    for name in ["gpu", "cuda", "device", "card"] {
        for (at, _) in sentence.match_indices(name) {
            let rest = sentence[at + name.len()..].trim_start_matches([' ', ':', '#', '-', '_', '=']);
            let mut bytes = rest.bytes();
            if let (Some(digit @ b'0'..=b'9'), Some(b' ' | b'-' | b'\'')) = (bytes.next(), bytes.next()) {
                numbers.push(digit - b'0');
            }
        }
    }
    numbers
}

/// `1024x1024`: of an image.
fn is_resolution(word: &str) -> bool {
    let side = |text: &str| (3..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    word.split_once(['x', '*', '×'])
        .is_some_and(|(width, height)| side(width) && side(height))
}

/// `128k`: of tokens.
fn is_thousands(word: &str) -> bool {
    let digits = word.strip_suffix('k').unwrap_or_default();
    (2..=4).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}
