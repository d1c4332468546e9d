# fish completion for pccrun
function __pccrun_complete
    set -l words (commandline -opc)
    for line in (pccrun completion -- $words[2..-1] "$(commandline -ct)" 2>/dev/null)
        switch $line
            case :files
                __fish_complete_path "$(commandline -ct)"
            case ':command*'
                set -e words[1..(string split \t -- $line)[2]]
                complete -C "$(string join ' ' -- (string escape -- $words) (commandline -ct))"
            case '*'
                echo $line
        end
    end
end
complete -c pccrun -f -a '(__pccrun_complete)'
