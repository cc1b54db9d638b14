//! What a report is about, sentence by sentence taken together: ideas that people put in many words, of which each alone says little.
//!
//! DECISION: these are wide on purpose, and weigh next to nothing: they decide only where no number, no line of a program and no sentence says more.

use super::words::Words;
use crate::evidence::{Evidence, Idea, Quote};

const IDEAS: &[(Idea, Words)] = &[
    (Idea::Others, OTHERS),
    (Idea::Holds, HOLDS),
    (Idea::Grows, GROWS),
    (Idea::Rounds, ROUNDS),
    (Idea::Pieces, PIECES),
    (Idea::Reserved, RESERVED),
    (Idea::Breaks, BREAKS),
    (Idea::Machine, MACHINE),
    (Idea::Slows, SLOWS),
    (Idea::Spills, SPILLS),
    (Idea::Builds, BUILDS),
    (Idea::Fails, FAILS),
    (Idea::Asks, ASKS),
    (Idea::Uses, USES),
    (Idea::Weights, WEIGHTS),
    (Idea::Tokens, TOKENS),
    (Idea::Computes, COMPUTES),
];

pub(super) fn see(evidence: &mut Evidence, sentence: &str, quote: &Quote) {
    for (idea, words) in IDEAS {
        if !evidence.ideas.contains_key(idea) && words.are_in(sentence) {
            evidence.ideas.insert(*idea, quote.clone());
        }
    }
}

const OTHERS: Words = Words(
    "much at once|many at once|number of jobs|running jobs|another process|another program|another app|another user|another job|another instance|another container|another notebook|\
    another model|other process|other program|other app|other user|other job|other instance|other container|other notebook|\
    someone|somebody|colleague|anyone else|everyone|two process|two program|two instance|two notebook|two job|two script|two app|\
    two server|two container|multiple process|multiple program|multiple instance|multiple job|multiple user|multiple container|\
    several process|several program|several instance|several job|several user|many process|more than one|second instance|\
    second process|second server|second program|second job|shared gpu|share the|shares the|sharing|same gpu|same card|same node|same machine|same time|\
    simultan|concurrent|in parallel|alongside|in the background|background process|zombie|orphan|defunct|stale|leftover|left over|\
    dangling|ghost|hung process|previous run|last run|earlier run|previous session|previous process|previous instance|old process|\
    dead process|crashed process|desktop|xorg|gnome|browser|chrome|firefox|game|notebook|jupyter|pycharm|plex|frigate|blender",
);
const HOLDS: Words = Words(
    "occup|hold|held|taken|taking up|takes up|take up|using the gpu|using gpu|using my gpu|in use|used by|hog|eat|kill|clos|stop|shut|terminat|\
    exit|still running|already running|was running|were running|no process|disappear|not released|busy|grab|takes all|takes the|takes most|ran |run |runs ",
);
const GROWS: Words = Words(
    "grow|grew|increas|rise|rising|climb|pile|piling|accumul|creep|goes up|go up|going up|went up|goes from|up to full|more and more|fills|\
    filling|balloon|explod|adds up|adding up|left in|left on|remain|stays|stay |never come|not free|~n't free|to free|not releas|~n't releas|\
    never free|never releas|not clear|~n't clear|not unload|~n't unload|leak|retain|linger|keeps|not go down|~n't go down|not drop|~n't drop|\
    not decreas|~n't decreas|builds up|build up|swells|inflat",
);
const ROUNDS: Words = Words(
    "each|every|per |after a|after some|after several|after many|after 1|after one|after one|again|loop|over time|hours|days|a day|overnight|steps|\
    epoch|iteration|runs|calls|switch|reload|until|eventually|1 run|one run|second |subsequent|long run|long-run|repeated|multiple times|\
    times|continu|consecutive|between|previous|former|gradual|slowly|steadily|constant|thousands|hundreds|indefinite|new images|new files|many ",
);
const PIECES: Words = Words(
    "fragment|in pieces|gaps|holes|contiguous|interleav|empty_cache|defrag|small blocks|\
    smaller blocks|free blocks|free block|cached blocks|block sizes|large enough block|big enough block|inactive|non-releasable|reserved but|\
    reserved-but|unallocated|coalesc|compact|best-fit|best fit",
);
const RESERVED: Words =
    Words("reserved|allocated|allocation|free |cached|segment|blocks|allocator|arena|pool");
const BREAKS: Words = Words(
    "host reset|hard reset|whole-host|whole host|power outage|system crash|crashes my|wedge|black screen|screen goes|screen turn|goes black|went black|blank|freez|frozen|unrespons|is lost|was lost|gets lost|display loss|loses|\
    chip reset|gpu reset|resets|reboot|power cycle|power-cycle|cold boot|shuts down|shut down|shutdown|powers off|disappear|vanish|not detected|\
    no longer detected|undetected|not recogni|fell off|falls off|drops off|drop off|bsod|blue screen|kernel panic|overheat|artifact|driver crash|\
    crashes the driver|crashes the system|crashes the whole|xid|gsp|pcie|psu|power supply|power limit|riser|firmware|bios|suspend|resume|sleep|reinstall|\
    reload the driver|unload the driver|kernel module|kernel update|driver update|new driver|driver version|downgrading the driver",
);
const MACHINE: Words =
    Words("gpu|cuda|card|display|driver|system|machine|host|computer|pc |server|nvidia|amdgpu|device|egpu");
const SLOWS: Words = Words(
    "slow|crawl|stall|forever|speed|tokens per second|tokens/s|tok/s|t/s|it/s|unrespons|freez|lag|drops to|dropped to|longer than|times longer|minutes",
);
const SPILLS: Words = Words(
    "shared memory|shared gpu|shared vram|system memory|system ram|host memory|host ram|main memory|swap|paging|fallback|sysmem|managed|unified|\
    uvm|oversubscri|over the bus|over pcie|spill|into ram|to ram|in ram",
);
const BUILDS: Words = Words(
    "compil|built|build |rebuil|recompil|wheel|binary|binaries|architecture|compute capab|sm_|arch |toolkit|mismatch|incompatib|not support|\
    unsupported|~n't support|not compatible|downgrad|prebuilt|cmake|nvcc|linked|library version|wrong version|cuda version",
);
const FAILS: Words = Words(
    "error|fail|crash|abort|exception|assert|segfault|illegal|invalid|cannot|can't|unable|missing|not found|refuses|rejects|wrong|garbage|nonsense|\
    gibberish|nan |exits|does not start|won't start",
);
const ASKS: Words = Words(
    "too much|so much|that much|far more|abnormal|unusual|excessive|intentional|normal|expected|usual|why |supposed|understand|explain|reason|wonder|curious|strange|weird|question|how much|larger than|more than|bigger than|\
    higher than|as designed|by design|default|does it need|is there a way|is it possible",
);
const USES: Words = Words(
    "use memory|use the gpu|fills up|consum|takes up|usage|memory use|uses |using|allocates|allocate |preallocat|pre-allocat|footprint|occup|reserves|takes 9|takes all|~% of",
);
const WEIGHTS: Words = Words(
    "billion|weights|checkpoint|load the model|loading the model|load model|loading model|loads the model|quant|fp16|bf16|4bit|4-bit|8bit|8-bit|\
    gguf|model size|big model|large model|larger model|bigger model|model is too|smaller model|does not fit|doesn't fit|not fit|params",
);
const TOKENS: Words = Words(
    "context|ctx|tokens|sequence length|max_length|max length|max_model_len|max-model-len|beam|num_seqs|slots|parallel requests|concurrent requests|\
    kv |kv-|past_key|history",
);
const COMPUTES: Words = Words(
    "batch|resolution|image|frame|video|attention|activation|training|train |backward|gradient|forward|epoch|input size|crop|tile|upscal|vae|\
    decoder|sampler|augment|point cloud|residue|sequence of|long audio|seconds of|minutes of|segmentation|backprop|workspace",
);
