# Completion of hearth for bash: `hearth completion` installs it.
_hearth() {
    local IFS=$' \t\n' line=${COMP_LINE:0:COMP_POINT} current offered
    local -a words
    read -r -a words <<<"$line"
    [[ $line != *[[:space:]] ]] || words+=("")
    current=${words[${#words[@]} - 1]}
    offered=$(_HEARTH_COMPLETE=words "$1" "${words[@]:1}" 2>/dev/null | cut -f 1)
    IFS=$'\n'
    # shellcheck disable=SC2206 # names have no wildcards
    COMPREPLY=($offered)
    # bash puts the answer in the place of what follows the last : or =
    if [[ $current == *[:=]* && $COMP_WORDBREAKS == *:* ]]; then
        local kept=${current%"${current##*[:=]}"}
        COMPREPLY=("${COMPREPLY[@]#"$kept"}")
    fi
    [[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace
}
complete -o default -F _hearth hearth
