# Completion of knnlm for fish. The command itself tells what can follow, so that it is always what it has.

function __knnlm_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l answer ($words[1] __complete $words[2..-1] 2>/dev/null)
    if test "$answer" = :files
        __fish_complete_path (commandline -ct)
    else
        string join \n -- $answer
    end
end

complete -c knnlm -f -a '(__knnlm_complete)'
