#compdef pccrun
# zsh completion for pccrun
_pccrun() {
  local -a found
  local line
  for line in "${(@f)$(pccrun completion -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    case $line in
      '') ;;
      :files) _files;;
      :command*)
        line=${line#*$'\t'}
        shift $line words
        ((CURRENT -= line))
        _normal
        return;;
      *) found+=("${${line//:/\\:}/$'\t'/:}");;
    esac
  done
  (($#found)) && _describe argument found
}
if [[ $funcstack[1] == _pccrun ]]; then
  _pccrun "$@" # zsh has loaded this file from $fpath, to complete
elif (($+functions[compdef])); then
  compdef _pccrun pccrun # it was sourced
else
  print -u2 'pccrun: completion: zsh completes nothing before compinit'
  print -u2 'pccrun: hint: autoload -U compinit && compinit, and then this once more'
fi
