# Functions that bash needs besides the generated ones. It breaks words at `:`, `=` and `@`, too (COMP_WORDBREAKS), which
# stand in values of allograft, and it knows nothing of `cargo allograft`.

# Sets `words`: the words up to the cursor as the shell reads them. Pieces without a blank between them are one word.
_allograft_words() {
    local line=${COMP_LINE:0:COMP_POINT} piece blank
    words=()
    for piece in "${COMP_WORDS[@]:0:COMP_CWORD + 1}"; do
        blank=${line%%[![:blank:]]*}
        line=${line:${#blank}}
        # The last piece ends at the cursor.
        [[ $line == "$piece"* ]] || piece=$line
        line=${line:${#piece}}
        if [[ -z $blank && ${#words[@]} -gt 0 ]]; then
            words[${#words[@]} - 1]+=$piece
        else
            words+=("$piece")
        fi
    done
}

# Adds to COMPREPLY those of the names $2... that begin with $1.
_allograft_among() {
    local typed=$1 name
    shift
    for name; do
        [[ $name == "$typed"* ]] && COMPREPLY+=("$name")
    done
}

# Completes a target with a prefix: $1 is what was typed of it.
_allograft_target() {
    local id ids=() toolchains
    case $1 in
    rust:*@*)
        toolchains=("${RUSTUP_HOME:-$HOME/.rustup}"/toolchains/*)
        [[ -e ${toolchains[0]} ]] && _allograft_among "$1" "${toolchains[@]/#*\//${1%%@*}@}"
        ;;
    rust:*) _allograft_among "$1" {rust-targets} ;;
    swift:*)
        while read -r id; do
            ids+=("swift:$id")
        done < <("$program" completions --swift-sdks 2>/dev/null)
        _allograft_among "$1" "${ids[@]}"
        ;;
    *)
        # Files are completed, too, and go first.
        if [[ -n $1 && -z $(compgen -f -- "$1") ]]; then
            _allograft_among "$1" rust: swift:
            [[ ${#COMPREPLY[@]} -gt 0 ]] && compopt -o nospace 2>/dev/null
        fi
        ;;
    esac
}

# Completes the words $2... by the generated function $1. The first word is the name that this function knows.
_allograft_generated() {
    local function=$1
    shift
    local words=("$@") last=$(($# - 1))
    local current=${words[last]} value breaks= character
    # What bash puts a reply in place of begins behind the last break.
    for character in : = @; do
        [[ $COMP_WORDBREAKS == *"$character"* ]] && breaks+=$character
    done
    value=$current
    if [[ $current == --*=* ]]; then
        value=${current#*=}
        words=("${words[@]:0:last}" "${current%%=*}" "$value")
        last=$((last + 1))
    fi
    local COMP_WORDS=("${words[@]}") COMP_CWORD=$last
    "$function" "${words[0]}" "$value" "${words[last - 1]}"
    case " graft undo inspect verify " in
    *" ${words[1]} "*) [[ ${#COMPREPLY[@]} -eq 0 && $value == "$current" ]] && _allograft_target "$current" ;;
    esac
    local typed=$value kept
    # A value behind `=`, if that does not break words.
    [[ $value != "$current" && $breaks != *=* ]] && COMPREPLY=("${COMPREPLY[@]/#/${current%%=*}=}") && typed=$current
    if [[ -n $breaks && $typed == *["$breaks"]* ]]; then
        kept=${typed##*["$breaks"]}
        kept=${typed:0:${#typed} - ${#kept}}
        # readline counts an at sign in front of a word as a part of it.
        kept=${kept%@}
        COMPREPLY=("${COMPREPLY[@]#"$kept"}")
    fi
}

# Completes `allograft` and `cargo-allograft`.
_allograft_program() {
    local words program=$1
    COMPREPLY=()
    _allograft_words
    case ${1##*/} in
    cargo-allograft) _allograft_cargo_words "${words[@]:1}" ;;
    *) _allograft_generated _allograft allograft "${words[@]:1}" ;;
    esac
}

# Completes what follows `cargo allograft`: $@.
_allograft_cargo_words() {
    if [[ $# -gt 1 && $1 == bench ]]; then
        _allograft_generated _cargo__allograft__bench cargo-allograft-bench "${@:2}"
    else
        _allograft_generated _cargo__allograft cargo-allograft "$@"
    fi
}

# The function that completes `cargo` otherwise.
_allograft_cargo_other=

# Takes the place of the function that completes `cargo` now, with its options.
_allograft_cargo_take() {
    local line function
    line=$(complete -p cargo 2>/dev/null)
    if [[ $line =~ \ -F\ ([^ ]+)\  ]]; then
        function=${BASH_REMATCH[1]}
        [[ $function == _allograft_cargo ]] && return
        _allograft_cargo_other=$function
        eval "${line/" -F $function "/" -F _allograft_cargo "}"
    else
        complete -F _allograft_cargo -o bashdefault -o default cargo
    fi
}

# Completes `cargo`: behind `allograft` its own words and cargo's, else as before.
_allograft_cargo() {
    local words program=allograft at=1
    COMPREPLY=()
    if [[ -z $_allograft_cargo_other ]]; then
        # bash-completion loads what completes a command when it is asked for the first time.
        if declare -F _comp_load >/dev/null; then
            _comp_load cargo
        elif declare -F __load_completion >/dev/null; then
            __load_completion cargo
        fi
        _allograft_cargo_take
    fi
    _allograft_words
    [[ ${words[1]} == +* ]] && at=2
    if [[ ${#words[@]} -le $((at + 1)) || ${words[at]} != allograft ]]; then
        [[ -z $_allograft_cargo_other ]] || "$_allograft_cargo_other" "$@"
        return
    fi
    _allograft_cargo_words "${words[@]:at + 1}"
    # The name of a command is completed by now; options and values may be cargo's.
    [[ -z $_allograft_cargo_other || ${#words[@]} -le $((at + 2)) ]] && return
    local own=("${COMPREPLY[@]}") kept=("${words[@]:0:at}" "${words[@]:at + 1}")
    local COMP_WORDS=("${kept[@]}") COMP_CWORD=$((${#kept[@]} - 1)) COMP_LINE="${kept[*]}"
    local COMP_POINT=${#COMP_LINE}
    COMPREPLY=()
    [[ ${#own[@]} -gt 0 && ${words[${#words[@]} - 1]} != -* ]] || "$_allograft_cargo_other" cargo "$2" "$3"
    COMPREPLY+=("${own[@]}")
}

# bash takes `nosort` from 4.4 on.
complete -F _allograft_program -o nosort -o bashdefault -o default allograft cargo-allograft 2>/dev/null ||
    complete -F _allograft_program -o bashdefault -o default allograft cargo-allograft
_allograft_cargo_take
