//! Words that people use, as beginnings: `releas` is release, released and releasing. A blank at the end makes it a whole word.

/// Beginnings of words, one of which must be there, parted by `|`; with `~` it may stand in the middle of a word.
#[derive(Clone, Copy)]
pub(super) struct Words(pub(super) &'static str);

impl Words {
    pub(super) fn count_in(self, sentence: &str) -> usize {
        self.0.split('|').filter(|word| is_in(word, sentence)).count()
    }

    pub(super) fn are_in(self, sentence: &str) -> bool {
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

// Prose.
/// Words that prose cannot do without.
pub(super) const SMALL_WORDS: Words = Words(
    "~的|~了|~是|~不|~在|~我|the |a |an |is |are |was |i |i'm |we |my |it |it's |to |and |of |on |in |for |when |with |but |after |\
    that |this |if |not |by |from |while |then |even |there |be |has |have |does |only |still |at |each |\
    all |why |how ",
);
/// Notes without small words are prose all the same.
pub(super) const HELPED: Words =
    Words("ok |oom |fixes|fixed|works|worked|resolved|resolves|solved|solves|helped|helps");
/// Sentences of programs, which read like prose and are printed whatever the cause.
pub(super) const OF_PROGRAMS: Words = Words(
    "try setting|see documentation for memory|tried to allocate|total capac|is reserved by pytorch|\
    gpu_memory_utilization|gpu memory utilization|cudamalloc failed|current device:|internal assert failed|\
    compile with|tf_gpu_allocator|device-side assertions|asynchronously reported|to avoid fragmentation",
);

// Memory that grows, stays and is not given back.
pub(super) const MEMORY: Words =
    Words("~显存|~内存|~mb |~mib |~gb |~gib |memory|vram|ram |mib |mb |gb |gib |gpu mem|gpu usage|gpumem");
pub(super) const NOT: Words = Words(
    "~不|~没|~无|not |~n't |never|no longer|without|fail|unable|cannot|only after|only when|unless|refus",
);
pub(super) const GIVE_BACK: Words = Words(
    "~释放|~回收|freed|not free|~n't free|never free|frees|to free|free up|be free|get free|releas|reclaim|unload|\
    deallocat|give back|given back|giving back|go down|goes down|went down|come down|comes down|drop back|\
    drops back|go back|goes back|return to|returns to|returned|return the|return memory|garbage|cleared|\
    clear the|clean up|cleaned up|decreas|disappear",
);
pub(super) const STAY: Words =
    Words("remain|stays|stay |stuck|still|kept |keeps |retain|linger|left behind|leftover|hold on");
pub(super) const HELD: Words = Words(
    "occupied|allocated|in use|used|held|loaded|resident|higher|high |consum|in vram|in gpu|in memory|full ",
);
pub(super) const LATER: Words =
    Words("after|even |when|once|until|despite|between|next|previous|finish|exit|clos|stop|delet|destroy");
pub(super) const KEEPS: Words = Words(
    "still keep|still there|still allocated|~仍然占用|~还占用|~依然占用|~不释放|~无法清|being used|as if|never freed|not freed|keeps hold|keeps occup|keeps the|keeps using|stays occup|stays allocated|retain|still hold|still us|still tak|still occup|still alloc|still consum|remain|never come|never came|\
    does not return|left in|stays in|stay in|keeps hold|never go|does not drop|trapped|not come back|\
    never get",
);
pub(super) const FORMER: Words = Words("former|previous|old |earlier|last ");
pub(super) const STAYS: Words =
    Words("stays|remains|stay |remain |kept |is still|are still|not removed|not unloaded");
pub(super) const MORE: Words = Words(
    "reach|~增长|~增加|~上涨|~增大|~越来越|goes up|go up|went up|goes from|went from|grows|rises|increas|adds|added|climbs|leaves|left |more ",
);
pub(super) const ROUNDS: Words = Words(
    "after many|after several|with use|overnight|~每次|~每个|~逐渐|~不断|~一直|~慢慢|each|every|per |within|days|hours|steps|times|again and again|iteration|epoch|loop|cycle|over time|\
    after some|after a few",
);

// Cards, and which was meant.
pub(super) const CARD: Words = Words("~显存|~显卡|nvidia-smi|gpu|vram|card|cuda|device|memory");
pub(super) const STRAY: Words = Words(
    "excluded|deselected|unassigned|idle gpu|spare gpu|should be empty|gpu other|internal gpu|defaults to 0|default to 0|defaults to gpu|defaults to device|dedicated gpu|discrete gpu|1st gpu|gpu no|integrated gpu|rest of the gpus|both cards|all 4|all four|all visible|weaker|slower gpu|igpu|second gpu|\
    secondary|excluded|first card|wrong gpu|wrong device|wrong card|other gpu|other card|another gpu|\
    another card|another device|first gpu|default gpu|default device|all gpus|all of the gpus|\
    all available gpus|every gpu|each gpu|both gpus|multiple gpus|all cards|gpu other than|\
    device other than|non-default|first visible|current device|rank 0|rank0|gpu zero|unused gpu|primary gpu",
);
/// Cards that are named by what is wrong with them.
pub(super) const MISPLACED: Words = Words(
    "wrong gpu|wrong device|wrong card|excluded gpu|unintended gpu|unused gpu|gpu that is not|gpu other than|\
    device other than|unselected|gpu i did not|not the gpu|not the one",
);
/// The card on which everything lands that nobody placed.
pub(super) const ON_FIRST: Words = Words(
    "only using gpu 0|only uses gpu 0|only use gpu 0|only on gpu 0|only gpu 0|on only one gpu|only on one gpu|to only one gpu|only the first gpu|the 1st gpu to|on gpu 0|on gpu0|on gpu-0|in gpu 0|in gpu0|of gpu 0|of gpu0|on cuda:0|in cuda:0|to cuda:0|on device 0|\
    on card 0|on the first gpu|on the first card|on the first visible|on another gpu|of another gpu|\
    on the other gpu|on every gpu|on each gpu|occupies gpu 0|\
    occupy gpu 0|on 1st gpu|on the 1st gpu",
);
/// One card in the place of another, both by name.
pub(super) const IN_PLACE_OF: Words = Words(
    "instead of|rather than|not my|not the|and not|prefers|over my|over the|weaker|slower|smaller one|ignores|ignoring",
);
/// Names of the card that is taken where none is named.
pub(super) const FIRST_CARD: Words = Words(
    "internal gpu|defaults to 0|default to 0|defaults to gpu|first gpu|1st gpu|first card|first device|first visible|default gpu|default device|default cuda|gpu zero|current device|rank 0|\
    primary gpu|main gpu|one gpu|single gpu|one card|integrated gpu|igpu",
);
pub(super) const OTHER_CARDS: Words = Words(
    "other gpu|other card|other device|another gpu|another card|another device|second gpu|2nd gpu|all gpus|every gpu|each gpu|\
    multiple gpus|all available gpus|all the gpus|both gpus|each rank|every rank|all rank|other rank|local_rank|local rank|other processes on|\
    every process|each process|all process|all worker|every worker|each worker|wrong gpu|wrong card|wrong device|unused gpu|rest of the gpus",
);
pub(super) const MEANT: Words = Words(
    "all the process|defaults to|default to|~却|not used|fails to|incorrect|mistaken|accident|not the|~但|~却|~还是|~只|~仍|only use|want to|much more|more than|only one|than other|than the other|compared with|compared to|\
    higher|why does|incorrectly|unused|but |although|though|instead|despite|still|also |rather than|extra|\
    additional|unexpected|unwanted|unintend|ignor|regardless|always|even if|even when|even though|no matter|\
    unnecessar|should |shouldn|wrong|not respect|~n't respect|~n't honor|only want|whereas|yet |as well|\
    default|all rank|all process|every rank|every process|each rank|each process|every worker|all worker|\
    each worker|all of the process|initializes",
);
pub(super) const WANTED: Words = Words("want|only|chose|specif|select|set |put |meant|intend|assign");
pub(super) const PRESENCE: Words = Words(
    "assign|~使用|~推理|~占用|kept load|went|~内存|~显存|~进程|~mb |~mib |~gb |~gib |initiali|context|memory|vram|mib|mb |gb |process|alloc|uses |use |used |using |\
    occup|runs on|run on|running on|load|tensor|appear|goes to|went to|lands|landed|stuck|creates|created|places|\
    placed",
);
/// A choice was made, and made no difference.
pub(super) const REGARDLESS: Words =
    Words("regardless|no matter|whichever|whatever|always|every time|only ever");
pub(super) const CHOSEN: Words = Words(
    "which cuda|which gpu|which device|which card|gpu i |device i |card i |i set|i have set|i select|i choose|\
    i chose|specif|setting of|the setting",
);
pub(super) const VISIBLE: Words = Words(
    "cuda_visible_devices|hip_visible_devices|rocr_visible_devices|gpu_device_ordinal|cuda_device_order",
);
pub(super) const PICKED: Words =
    Words("picks|fixes|fixed|works|worked|solve|resolve|helps|helped|selects|correct");

// Others on the card, and what is left of them.
pub(super) const OTHER: Words = Words(
    "~其他|~别的|~别人|~残留|colleague|last one|last run|somebody|more than one|other |another|second |different|parallel|previous|\
    old |stale|zombie|orphan|leftover|hung |dangling|background|someone|neighbo|concurrent|simultaneous|\
    multiple|two |both |several|existing|crashed|dead |python|jupyter|notebook|desktop|browser|chrome|\
    firefox|game|xorg|ollama|co-locat|colocat|shar",
);
pub(super) const PROCESS: Words = Words(
    "~进程|~程序|ps shows|job|server|worker|child|process|program|instance|application|app |apps |container|user|session|\
    kernel|notebook|service|pod |pods |tenant|browser|game|desktop|chrome|xorg|pid |pids |script",
);
pub(super) const TAKES: Words = Words(
    "~占用|~占了|~占着|owns|own |scheduled|on one |same |single |surviv|using|uses |use |used |hold|held|occup|hog|taking|\
    taken|takes|consum|kill|stop|closed|closing|close |left|eat|ate |grab|shar|reserv|terminat|restart|\
    reboot|still running|already running|at the same time|alongside|full|not released|competing|compete",
);
pub(super) const ALIVE: Words = Words(
    "~n't stop its|not stop its|not killed with|stays running|stay running|keeps running|keep running|remains running|remain running|continues running|continue running|continues to run|leaves worker|leaves the|stays alive|remain alive|remains alive|not shut down|not terminated|~n't terminate|does not exit|~n't exit|not exit|killed before|surviv|not killed|did not exit|left behind|had been killed|after kill|was killed|\
    still running|still open|still alive|not been shut|was running|left running|hanging|was still|\
    were still|kept running",
);
/// Programs that hold memory of a card, by name.
pub(super) const PROGRAMS: Words = Words(
    "comfy|plex|ollama|vllm|whisper|stable diffusion|automatic1111|sd-webui|llama-server|llama-swap|\
    llama cpp|lm studio|frigate|blender|steam|obs |chrome|firefox|xorg|gnome|kde |wayland|desktop|game|\
    jupyter|tabby|sglang|tensorflow|xtts|browser|jellyfin|immich|ffmpeg|\
    pycharm|spyder|vscode|matlab|another notebook",
);
pub(super) const TOGETHER: Words = Words(
    "same|shar|both|alongside|together|while|next to|beside|concurrent|at the same time|already|parallel",
);
/// The card shows a picture as well.
pub(super) const PICTURE: Words = Words("desktop|display|monitor|screen|x11|x server|compositor");
pub(super) const SHOWN: Words = Words(
    "driv|connected to|attached|plugged|also used|hooked|rendered on|runs on the same|also runs|also render",
);
/// Memory of the host that the card is to reach.
pub(super) const OF_HOST: Words = Words("host |host-|pageable|page-locked|cpu memory");
pub(super) const REGISTERS: Words =
    Words("registration|registering|registers|registered|locking|lock pool|lock-pool");
pub(super) const HALF_GONE: Words = Words(
    "runaway|stuck process|hanging process|process hang|ppid 1|half gone|zombie|orphan|defunct|dead process|crashed process|ghost process|crash leaves|\
    still running a job",
);
pub(super) const RAN: Words = Words("~进程|~程序|~训练|program|process|python|script|training|job|code");
pub(super) const ENDED: Words = Words(
    "interrupt|forcibly|abruptly|kill the process|stop the training|stop training|after the crash|~被kill|~kill后|~中断|~kill主|~kill掉|~kill了|~结束|~停止|~退出|ends|ended|finish|exit|terminat|quit|stopped|is killed|was killed|ctrl-c|ctrl c|crash",
);
pub(super) const TABLE: Words = Words("~看不到|~查不到|kill -9|nvidia-smi|fuser|lsof|task manager|nvtop");
pub(super) const NOBODY: Words = Words(
    "nothing appears|nothing is shown|shows nothing|nothing shows|no processes|none of the process|no pids|empty process|process list is empty|not display|~n't display|no visible|no active process|nobody|by someone|~没有进程|~看不到|~查不到|still occup|no such process|kill -9|no process|no running process|no other process|not show|~n't show|\
    not list|~n't list|not appear|not see|~n't see|no pid|fuser|invisible|zombie|no compute process|\
    not visible|without any process",
);
pub(super) const IN_USE: Words = Words("in use|used|occup|taken|full|allocated|hold|held|consum|gone");
pub(super) const BEFORE: Words = Words(
    "before the start|before start|before it start|before load|before run|before any|before launch|before i |\
    before we |already|at start|at boot|when idle|in idle|without running|nothing running|nothing is running",
);
pub(super) const BEFORE_MODEL: Words = Words(
    "before any model|before the model|before a model|before loading|before any alloc|before anything|\
    without a model|no model is loaded",
);
pub(super) const AMOUNT: Words = Words("~mib|~ gb|~ mb|~gb |~mb |~gib|~% |most|much|full|some ");

/// Slowness, by the clock.
pub(super) const TAKES_TIME: Words =
    Words("takes|took|taking|needs|generation|iteration|epoch|per image|per step|耗時|耗时");
pub(super) const LONG_TIME: Words = Words(
    "minutes|very long|long time|forever|ages|hours|longer than|times longer|times slower|iteration time|seconds per|秒",
);

// The card is not used at all, or not by this program.
pub(super) const CPU_ALONE: Words = Words(
    "only cpu|only on cpu|only runs on cpu|only runs on the cpu|cpu only|cpu instead|no gpu usage|\
    not using gpu|not using the gpu|not use gpu|not use the gpu|not use my gpu|~n't use gpu|~n't use the gpu|\
    ~n't use my gpu|~n't use any vram|not use any vram|gpu is not used|gpu not used|back to cpu|\
    back to the cpu|fallback to cpu|gpu is not detected|gpu not detected|not detect gpu|not detect my gpu|\
    not detecting gpu|no gpu found",
);
/// One model makes way for another.
pub(super) const SWITCH: Words =
    Words("switch|swapping|swaps|swap to|change the model|changing model|next model");

/// A library of one card on another.
pub(super) const BUILT: Words = Words("compil|built |build |rebuil|mismatch");
pub(super) const ARCHITECTURE: Words = Words(
    "architecture|arch |arch_list|torch_cuda_arch_list|cuda_arch|cuda_arch_bin|compute capabilit|sm_|another type|different gpu",
);
/// Somebody is astonished at how much is in use.
pub(super) const WONDERS: Words = Words(
    "whatever model|regardless of|abnormal|unusual|excessive|far more|intentional|on purpose|any reason|the reason|what is causing|what's causing|is it the case|compared to the size|is this normal|is it normal|is that normal|is this usual|is this ususal|is it usual|is this expected|is it expected|\
    usage expected|usage normal|why does|why is|why the|why do|so much|too much|quite high|seems high|as much|that much|large memory|\
    regardless of the total|whatever the model|requires",
);
pub(super) const FOOTPRINT: Words = Words(
    "takes |takes all|allocates all|take all|fills up|occupied|allocat|footprint|consum|takes up|taken up|usage|memory usage|gpu ram|gpu memory|vram|reserved|requires|ram as possible",
);
pub(super) const AMOUNTS: Words = Words("~gb |~g |~gib |~mb |~mib |~% |large|high|most|all ");
/// The allocator's memory lies between what lives.
pub(super) const ALLOCATOR: Words = Words("blocks|allocator|empty_cache|segment|reserved");
pub(super) const GAPS: Words = Words(
    "splits the|split the|remainder|too small|pins the|non-releasable|smaller blocks|no block|gaps|holes|interleav|scattered|in pieces|non-contiguous|not contiguous",
);
pub(super) const MODEL_WORD: Words = Words("model");
pub(super) const UNLOAD: Words = Words("unload");
pub(super) const RELOAD: Words =
    Words("reload|load again|loading again|loaded again|load it again|restart the");

// What goes well, and what then does not.
pub(super) const BEGINS: Words =
    Words("chatting|text|fits|takes |load|start|boot|init|works|runs|ran |worked|idle|short ");
pub(super) const WELL: Words =
    Words("fine|ok |okay|success|without|correctly|normal|no problem|well |fits|clean|works|runs|worked");
pub(super) const TURN: Words = Words("but |then |however|until|when|as soon|after|once|while|during|upon");
pub(super) const ENDS: Words = Words(
    "kills|malloc fail|breaks|stops work|crash|oom|out of memory|out-of-memory|fail|die|error|abort|killed|\
    exhaust|runs out|ran out",
);
pub(super) const OUT: Words = Words("~爆显存|~显存不足|~溢出|oom|out of memory|out-of-memory|exceed");
pub(super) const AT_WORK: Words = Words(
    "picture|photo|attach|document|paste|answer|reply|eval|vision|upload|prompt|request|inferenc|generat|\
    chat|message|image|token|complet|query|queries|context|respon|conversation|decod|prefill|long|embedding",
);
pub(super) const WHILE: Words = Words("during|while|in the middle|mid-|halfway|partway");
pub(super) const WORKING: Words = Words("token|prefill|answer|reply|conversation|chatting");
pub(super) const FIRST: Words = Words("first|long|large|big |bigger|second");
pub(super) const ASKING: Words = Words("request|prompt|message|reply|document|conversation|question");
pub(super) const DEEPER: Words = Words("context|prompt|conversation|history|kv |token|chat|input");
pub(super) const LONGER: Words = Words(
    "climbs|rises|into the|k tokens|while the|as the|per 1k|per token|grows|growing|grow |longer|fills|\
    filled|increas|deeper|larger|bigger|long |accumulat|scales",
);
pub(super) const ASKED: Words = Words("buffer|pool|memory|vram|oom|out of memory|crash|fail|alloc");
pub(super) const ONCE: Words = Words("first|1st |one run|1 run|once|one image|1 image");
pub(super) const AGAIN: Words =
    Words("second|2nd |subsequent|next|again|following|another run|after 1|after one|third");
/// What a computation is fed with; more of it needs more at once.
pub(super) const FED: Words = Words(
    "frame|sample|point|image|pixel|residue|atom|nodes|patch|crop|slices|voxel|clip|seconds of|minutes of|\
    hours of|1080p|720p|resolution|steps|video|audio",
);

pub(super) const CLOSED: Words = Words("clos|stopp|stop |shut|quit|exit|unload");
pub(super) const END_IT: Words = Words("kill|clos|stopp|stop |shut|terminat|quit|exit");
pub(super) const HOLDS: Words = Words("reserved");
pub(super) const LIVES: Words = Words("allocated");
pub(super) const ONLY: Words = Words("but |only |while |though|whereas|of which");
