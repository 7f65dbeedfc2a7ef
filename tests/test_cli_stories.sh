#!/bin/sh
# A model that has learnt to write, through llama.cpp:  sh tests/test_cli_stories.sh PATH_TO_knnlm SOURCE_DIR
# It is in the data folder (docs/data.md); the exit code is 77 without it, or without llama.cpp.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/llama_kit.sh"
stories=$data/models/stories15M-f16.gguf
[ -r "$stories" ] || skip "no $stories"

cat >story.txt <<'END'
Once upon a time, there was a little girl named Lily. She loved to play outside in the park with her friends. One day, Lily
saw a big red ball under a tree. She ran to the ball and kicked it. The ball went up, up, up into the sky!
END
cat >other.txt <<'END'
Once upon a time, there was a little boy named Tim. He liked to play in the park. One day, Tim saw a big red ball.
END
does info "$stories"
says '^tokenizer  *SentencePiece, 32000 tokens'
does build -m "$stories" -o stories.store --no-tune story.txt
does eval -m "$stories" -s stories.store --temperature 50 --json other.txt
check awk -v ppl="$(number ppl_lm)" 'BEGIN { exit !(ppl > 1.5 && ppl < 12) }'
does explain -m "$stories" -s stories.store 'Lily saw a big red'
says ' " ball"$'
conclude
