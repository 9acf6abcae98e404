# Completion of hearth for fish: `hearth completion` installs it.
function __hearth_offers
    set -l words (commandline -opc) (commandline -ct)
    set -l offers (env _HEARTH_COMPLETE=words hearth $words[2..-1] 2>/dev/null)
    if set -q offers[1]
        string join \n -- $offers
    else
        __fish_complete_path (commandline -ct)
    end
end
complete --command hearth --no-files --arguments '(__hearth_offers)'
