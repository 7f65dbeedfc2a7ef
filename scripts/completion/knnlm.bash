# Completion of knnlm for bash. Commands and options are asked of knnlm itself, so that they are always those it has.

_knnlm_commands() { "$1" --help 2>/dev/null | sed -n '/^commands:/,/^$/s/^  \([a-z][a-z]*\) .*/\1/p'; }

_knnlm_options() { "$1" "$2" --help 2>/dev/null | sed -n '/^options:/,/^$/s/^[^-]*\(-[a-z], \)\{0,1\} *\(--[a-z-]*\).*/\2/p'; }

# Values of the options that take one of a few words; a dash says that files are meant.
_knnlm_values() {
    case $1 in
    --preset) echo tiny small base stream stream-tiny gpt2-tiny gpt2 paper-bpe wiki103 ;;
    --tokenizer) echo bpe word wordpiece ;;
    --documents) echo file wiki jsonl ;;
    --encoding) echo UTF-8 UTF-16LE UTF-16BE latin1 windows-1252 GB18030 SHIFT_JIS KOI8-R ;;
    --precision) echo auto f32 bf16 ;;
    --engine) echo auto native llama ;;
    --type) echo f16 f32 bf16 q8_0 ;;
    --optimizer) echo adamw nesterov muon ;;
    --schedule) echo cosine linear constant plateau restarts ;;
    --positions) echo sinusoidal learned ;;
    --activation) echo relu gelu ;;
    --keys) echo f16 f32 int8 none ;;
    --key-type) echo f16 f32 ;;
    --value-type) echo int64 int32 int16 uint16 ;;
    --distance | --metric) echo l2 ip cosine ;;
    --tap) echo ffn ffn-raw attention attention-raw output-norm output ;;
    *) echo - ;;
    esac
}

_knnlm() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="$(_knnlm_commands "${COMP_WORDS[0]}") --help --version"
    elif [[ $current == -* ]]; then
        words="$(_knnlm_options "${COMP_WORDS[0]}" "${COMP_WORDS[1]}") --help"
    else
        words=$(_knnlm_values "$previous")
    fi
    if [ "$words" = - ]; then
        compopt -o default # names of files
        COMPREPLY=()
    else
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    fi
}

complete -F _knnlm knnlm
