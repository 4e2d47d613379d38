// What the shells load. They ask the program itself at every key press, so they know no verb and no option.

#include "apps/trainctl/completion.h"

namespace trainctl::cli {
namespace {

constexpr char kBash[] = R"sh(# Completion of trainctl for bash; needs nothing else. Load it with
#   source <(trainctl completions bash)
_trainctl() {
  local program=$1 word adds
  local -a found=()
  [[ $program != '~/'* ]] || program=$HOME/${program#'~/'}
  COMPREPLY=()
  mapfile -t found < <("$program" __complete bash "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null)
  adds=${found[0]-}
  for word in "${found[@]:1}"; do COMPREPLY+=("${word%%$'\t'*}"); done
  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=.] ]]; then compopt -o nospace 2>/dev/null; fi
  case $adds in
    files | folders | recipes) compopt -o filenames 2>/dev/null ;;
    *) return 0 ;;
  esac
  while IFS= read -r word; do COMPREPLY+=("$word"); done < <(
    case $adds in
      files) compgen -f -- "$2" ;;
      recipes) compgen -f -X '!*.toml' -- "$2"; compgen -d -- "$2" ;;
      folders) compgen -d -- "$2" ;;
    esac | sort -u)
}
complete -F _trainctl trainctl
)sh";

constexpr char kZsh[] = R"sh(#compdef trainctl
# Completion of trainctl for zsh. Put it as _trainctl into a folder of $fpath, or after compinit:
#   source <(trainctl completions zsh)
_trainctl() {
  local program=${(Q)words[1]} line value adds
  local -a found whole open
  program=${program/#\~\//$HOME/}
  found=("${(@f)$("$program" __complete zsh "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
  adds=$found[1]
  shift found
  for line in $found; do
    value=${${line%%$'\t'*}//:/\\:}
    [[ $line != *$'\t'* ]] || value+=:${line#*$'\t'}
    if [[ ${line%%$'\t'*} == *[=.] ]]; then open+=("$value"); else whole+=("$value"); fi
  done
  (( ! $#whole )) || _describe -t values value whole
  (( ! $#open )) || _describe -t keys key open -S ''
  [[ $adds == none ]] || compset -P '*=' || true
  case $adds in
    files) _files ;;
    folders) _files -/ ;;
    recipes) _files -g '*.toml(-.)' ;;
  esac
}
if [[ $funcstack[1] == _trainctl ]]; then _trainctl "$@"; else compdef _trainctl trainctl; fi
)sh";

constexpr char kFish[] =
    R"sh(# Completion of trainctl for fish. Put it as trainctl.fish into ~/.config/fish/completions, or
#   trainctl completions fish | source
function __trainctl_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    set -e words[1]
    set -l found ($program __complete fish $words "$current" 2>/dev/null)
    for line in $found[2..-1]
        echo $line
    end
    set -l before (string match -r '^.*=' -- "$current")
    set -l path (string replace -r '^.*=' '' -- "$current")
    switch "$found[1]"
        case files
            printf "$before%s\n" (__fish_complete_path "$path")
        case folders
            printf "$before%s\n" (__fish_complete_directories "$path" folder)
        case recipes
            printf "$before%s\n" (__fish_complete_directories "$path" folder)
            __fish_complete_suffix "$path" .toml | string match -r '^[^\t]*\.toml(?:\t.*)?$'
    end
end
complete -c trainctl -f -k -a '(__trainctl_complete)'
)sh";

}  // namespace

const char* CompletionScript(absl::string_view shell) {
  if (shell == "bash") return kBash;
  if (shell == "zsh") return kZsh;
  if (shell == "fish") return kFish;
  return nullptr;
}

}  // namespace trainctl::cli
