# bash completion for pccrun
_pccrun_files() { # adds the files that cur is the beginning of
  local IFS=$'\n'
  compopt -o filenames 2>/dev/null
  COMPREPLY+=($(compgen -f -- "$cur"))
}
_pccrun() {
  local cur=${COMP_WORDS[COMP_CWORD]} word rest
  COMPREPLY=()
  while IFS=$'\t' read -r word rest; do
    case $word in
      :files) _pccrun_files;;
      :command)
        if declare -F _command_offset >/dev/null; then
          _command_offset "$rest"
          return
        fi
        ((COMP_CWORD == rest)) && COMPREPLY=($(compgen -c -- "$cur"))
        _pccrun_files;;
      "${cur#=}"*) COMPREPLY+=("$word");;
    esac
  done < <(pccrun completion -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _pccrun pccrun
