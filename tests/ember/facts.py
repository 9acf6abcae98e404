"""What ember knows about hearth, as one table that a test compares with the product.

`asks` are ways to say what somebody wants, each completing "How do I ...?".
`says` completes "<name> ...", with the verb in the third person.
"""

from __future__ import annotations

from tests.ember.fact_kinds import Answer, Command, Setting
from tests.ember.notation import phrasings

COMMANDS = (
    Command(
        "serve",
        "hearth serve",
        "starts the daemon in the foreground",
        phrasings("""start the daemon | start the hearth server | launch the daemon in the
            foreground | get the server running | bring up the daemon | run the daemon by hand |
            start the service | start the API server"""),
    ),
    Command(
        "run",
        "hearth run MODEL",
        "chats with a model, or answers one prompt",
        phrasings("""chat with a model | talk to a model | run a model | ask a model one question |
            answer one prompt from the terminal | use a model in a pipe | start a chat | try a
            model | open a conversation with a model"""),
    ),
    Command(
        "list",
        "hearth list",
        "lists the installed models",
        phrasings("""list the installed models | see which models are installed | see my models |
            find out what models I have | show all installed models | get a list of my models |
            check which models are on this machine | list models"""),
    ),
    Command(
        "show",
        "hearth show MODEL",
        "shows the details of a model",
        phrasings("""see the details of a model | inspect a model | look at the parameters of a
            model | get information about a model | show what is inside a model | view the details
            of one model | see how a model is set up"""),
    ),
    Command(
        "ps",
        "hearth ps",
        "shows the models loaded in memory now",
        phrasings("""see which models are loaded | see what is in memory | check which models are
            running | find the loaded models | see the models in memory right now | list the
            running models | know which model is loaded now"""),
    ),
    Command(
        "stop",
        "hearth stop MODEL",
        "unloads a model from memory",
        phrasings("""unload a model | stop a running model | free the memory of a model | take a
            model out of memory | unload a model from memory | stop a model | get my memory back
            from a model"""),
    ),
    Command(
        "rm",
        "hearth rm MODEL",
        "deletes a model from the store",
        phrasings("""delete a model | remove a model | delete a model from the store | get rid of a
            model | erase a model | uninstall a model | remove a model from disk | free disk space
            by deleting a model"""),
    ),
    Command(
        "cp",
        "hearth cp SOURCE TARGET",
        "copies a model under a new name",
        phrasings("""copy a model | duplicate a model | give a model a second name | copy a model
            under a new name | make a copy of a model | clone a model under another name"""),
    ),
    Command(
        "create",
        "hearth create NAME -f Modelfile",
        "builds a model from a Modelfile",
        phrasings("""build a model from a Modelfile | create a model | make my own model | make a
            custom model | turn a Modelfile into a model | create a new model | build my own model
            | package a model from a Modelfile"""),
    ),
    Command(
        "bench",
        "hearth bench MODEL",
        "measures the speed of a model: time to first token and throughput",
        phrasings("""measure the speed of a model | benchmark a model | see how fast a model is |
            test the throughput of a model | measure time to first token | find out how many
            tokens per second I get | time a model"""),
    ),
)
FLAGS = (
    Command(
        "show --modelfile",
        "hearth show MODEL --modelfile",
        "prints the Modelfile of a model",
        phrasings("""print the Modelfile of a model | see the Modelfile of a model | get the
            Modelfile back from a model"""),
    ),
    Command(
        "--verbose",
        "hearth run MODEL --verbose",
        "prints the timings of each answer",
        phrasings("""print timings | see the timings of an answer | get the timings in a chat | show
            how long an answer took"""),
    ),
    Command(
        "--json",
        "hearth list --json",
        "prints the listing as JSON",
        phrasings("""get the list as JSON | print the listing as JSON | list the models in JSON for
            a script"""),
    ),
)
CHAT = (
    Command(
        "/help",
        "/help",
        "shows the commands of the chat",
        phrasings("""get help in the chat | see the commands of the chat | see the chat commands |
            list the slash commands"""),
    ),
    Command(
        "/set",
        "/set",
        "changes a setting in the chat",
        phrasings("""change a setting in the chat | set a parameter while chatting | change the
            temperature in the chat"""),
    ),
    Command(
        "/show",
        "/show",
        "shows details of the model in the chat",
        phrasings(
            """see the model's details in the chat | show details of the model while chatting"""
        ),
    ),
    Command(
        "/clear",
        "/clear",
        "clears the conversation",
        phrasings("""clear the conversation | start over in the chat | forget the conversation so
            far | reset the chat"""),
    ),
    Command(
        "/bye",
        "/bye",
        "leaves the chat",
        phrasings("""leave the chat | quit the chat | exit the chat | end the conversation | get out
            of the chat"""),
    ),
    Command(
        "Ctrl-C",
        "Ctrl-C",
        "stops an answer",
        phrasings("""stop an answer | interrupt an answer | cancel an answer in the chat | cut off a
            long answer"""),
    ),
    Command(
        '"""',
        '"""',
        "starts and ends a text of several lines",
        phrasings("""write several lines in the chat | enter a multi-line message | type more than
            one line | paste several lines"""),
    ),
)
INSTRUCTIONS = (
    Setting(
        "FROM",
        "names the base: a GGUF file or an installed model. It is required",
        phrasings("""name the base model | say which GGUF file to use | set the base of a model |
            point at the weights"""),
    ),
    Setting(
        "PARAMETER",
        "sets a parameter such as temperature or num_ctx",
        phrasings("""set a parameter | set a default setting | store the temperature in the model |
            fix a setting"""),
    ),
    Setting(
        "SYSTEM",
        "sets the system message",
        phrasings("""set the system message | set the system prompt | give the model a role | give
            the model a personality"""),
    ),
    Setting(
        "TEMPLATE",
        "sets the prompt template, written in Jinja",
        phrasings(
            """set the prompt template | change the chat template | use my own Jinja template"""
        ),
    ),
    Setting(
        "LICENSE",
        "holds the text of the license",
        phrasings("""add the license text | store the license | say which license the model has"""),
    ),
    Setting(
        "MESSAGE",
        "adds an example message to the conversation",
        phrasings("""add an example message | add example messages | show the model an example
            conversation"""),
    ),
)
PARAMETERS = (
    Setting(
        "temperature",
        "sets the randomness of the answers",
        phrasings("""make the answers more random | make the answers less random | set the
            randomness | make the model more creative"""),
        default="0.8",
    ),
    Setting(
        "top_k",
        "keeps only the k most likely tokens",
        phrasings("""keep only the most likely tokens | limit sampling to the k best tokens"""),
        default="40",
    ),
    Setting(
        "top_p",
        "keeps the most likely tokens up to the total probability p",
        phrasings("""limit sampling by total probability | use nucleus sampling"""),
        default="0.9",
    ),
    Setting(
        "min_p",
        "drops the tokens that are much less likely than the best one",
        phrasings("""drop unlikely tokens | drop tokens far less likely than the best"""),
        default="0",
    ),
    Setting(
        "seed",
        "fixes the random numbers, so that answers repeat",
        phrasings(
            """get the same answer every time | make answers repeat | fix the random numbers"""
        ),
    ),
    Setting(
        "num_ctx",
        "sets the context length in tokens",
        phrasings("""set the context length | make the context longer | give the model a longer
            memory of the chat"""),
    ),
    Setting(
        "num_predict",
        "sets the most tokens to generate",
        phrasings("""limit the length of an answer | set the maximum number of tokens | make the
            answers shorter"""),
    ),
    Setting(
        "stop",
        "names a string that ends the answer",
        phrasings("""set a stop string | end the answer at a string | stop at a certain text"""),
    ),
    Setting(
        "repeat_penalty",
        "makes repeated tokens less likely",
        phrasings("""punish repetition | stop the model from repeating itself | make repetition less
            likely"""),
        default="1.0",
    ),
)
VARIABLES = (
    Setting(
        "HEARTH_HOST",
        "sets the address of the daemon",
        phrasings("""change the address of the daemon | change the port | listen on another address
            | set the host of the daemon"""),
        default="127.0.0.1:4327",
    ),
    Setting(
        "HEARTH_MODELS",
        "says where the models are stored",
        phrasings("""store the models somewhere else | move the models to another disk | change the
            models folder"""),
    ),
    Setting(
        "HEARTH_HOME",
        "sets the folder for all of hearth's files",
        phrasings("""change the folder of all hearth files | move hearth's own folder | keep all of
            hearth's files elsewhere"""),
    ),
    Setting(
        "HEARTH_KEEP_ALIVE",
        "says how long a model stays loaded when idle",
        phrasings("""keep a model loaded longer | change how long an idle model stays loaded | keep
            models in memory"""),
        default="5m",
    ),
    Setting(
        "HEARTH_CONTEXT_LENGTH",
        "sets the default context length",
        phrasings("""change the default context length | set the context length for all models"""),
    ),
    Setting(
        "HEARTH_NUM_PARALLEL",
        "says how many requests a model serves at once",
        phrasings("""serve more requests at once | set how many requests run in parallel | allow
            parallel requests"""),
    ),
    Setting(
        "HEARTH_MAX_LOADED_MODELS",
        "says how many models may be loaded",
        phrasings("""limit the number of loaded models | allow more loaded models | set how many
            models may be loaded"""),
    ),
    Setting(
        "HEARTH_MAX_QUEUE",
        "says how many requests may wait",
        phrasings("""limit the waiting requests | make the queue longer | set how many requests may
            wait
            """),
        default="512",
    ),
    Setting(
        "HEARTH_KV_CACHE_TYPE",
        "sets the type of the key-value cache: f16, q8_0 or q4_0",
        phrasings("""quantize the key-value cache | use a smaller cache type | set the type of the
            cache | use a q8_0 cache"""),
        default="f16",
    ),
    Setting(
        "HEARTH_NUM_THREADS",
        "sets the number of CPU threads",
        phrasings("""use fewer CPU threads | set the number of threads | use more cores"""),
    ),
    Setting(
        "HEARTH_MEMORY_LIMIT",
        "sets the most memory the models may use",
        phrasings("""limit the memory of the models | cap the memory | keep the models from using
            too much memory"""),
    ),
    Setting(
        "HEARTH_LOAD_TIMEOUT",
        "says how long loading a model may take",
        phrasings("""allow more time for loading a model | change the load timeout"""),
        default="5m",
    ),
    Setting(
        "HEARTH_DRAIN_TIMEOUT",
        "says how long a stopping daemon lets streams finish",
        phrasings("""let streams finish when the daemon stops | change the drain timeout"""),
        default="30s",
    ),
    Setting(
        "HEARTH_ORIGINS",
        "lists the web origins that are allowed",
        phrasings(
            """allow a web origin | allow a web page to call the API | allow another origin"""
        ),
    ),
    Setting(
        "HEARTH_NO_AUTOSTART",
        "set to 1 keeps the CLI from starting the daemon by itself",
        phrasings("""keep the CLI from starting the daemon | turn off autostart | stop the daemon
            from starting by itself"""),
    ),
    Setting(
        "HEARTH_LOG_LEVEL",
        "sets how much the daemon logs",
        phrasings("""see more log messages | change the log level | turn on debug logs"""),
        default="info",
    ),
)

ABOUT = (
    Answer(
        phrasings("""what is hearth | what's hearth | tell me about hearth | what does hearth do |
            explain hearth | describe hearth | what kind of program is hearth | can you explain
            what hearth is | what is this hearth thing"""),
        "hearth is a local model runner: it runs language models on your own machine, private and"
        " free.",
        "local model runner",
    ),
    Answer(
        phrasings("""is hearth free | what does hearth cost | how much does hearth cost | do I have
            to pay for hearth | does hearth cost money"""),
        "hearth is free, under the MIT licence.",
        "free",
    ),
    Answer(
        phrasings("""is hearth private | does hearth send my data anywhere | where does my data go |
            is my data safe with hearth | do my chats leave my machine"""),
        "hearth is private: everything stays on your own machine.",
        "own machine",
    ),
    Answer(
        phrasings("""what licence does hearth have | which license is hearth under | what is
            hearth's license | what is the licence of hearth | under what licence is hearth
            published"""),
        "hearth is under the MIT licence.",
        "MIT",
    ),
    Answer(
        phrasings("""what is the API address | where is the API | what is the URL of the API | what
            is the base URL of hearth | at which address is the API | which URL do I give to the
            OpenAI client"""),
        "The OpenAI-compatible API is at http://127.0.0.1:4327/v1.",
        "http://127.0.0.1:4327/v1",
    ),
    Answer(
        phrasings("""what port does hearth use | which port does the daemon listen on | what is the
            default port | on which port is hearth | what is the port of hearth"""),
        "The default port is 4327.",
        "4327",
    ),
    Answer(
        phrasings("""is hearth compatible with OpenAI | can I use the OpenAI client with hearth |
            does hearth speak the OpenAI API | is there an OpenAI API | does hearth have an API"""),
        "Yes, hearth has an OpenAI-compatible API at http://127.0.0.1:4327/v1.",
        "Yes",
    ),
    Answer(
        phrasings("""which endpoint is for chat | what is the chat endpoint | where do I post chat
            messages | what path is chat completions"""),
        "The endpoint for chat is /v1/chat/completions.",
        "/v1/chat/completions",
    ),
    Answer(
        phrasings("""which endpoint lists the models | what endpoint gives the models | how do I get
            the models over the API | where does the API list models"""),
        "The endpoint for the models is /v1/models.",
        "/v1/models",
    ),
    Answer(
        phrasings("""which endpoint is for plain completions | what is the completions endpoint |
            where do I post a plain prompt"""),
        "The endpoint for plain completions is /v1/completions.",
        "/v1/completions",
    ),
    Answer(
        phrasings("""which endpoint tells the health | what is the health endpoint | how do I check
            that the daemon is healthy | where is the health check"""),
        "The endpoint for the health check is /health.",
        "/health",
    ),
    Answer(
        phrasings("""what file format does hearth use | in which format are models kept | which
            format are the models | what is the model format of hearth | what model files can
            hearth run"""),
        "hearth keeps models as GGUF files.",
        "GGUF",
    ),
    Answer(
        phrasings("""how do I install hearth | how is hearth installed | how can I install hearth |
            what is the install command | how do I set up hearth"""),
        "Run ./install.sh to install hearth.",
        "./install.sh",
    ),
    Answer(
        phrasings("""how do I run the tests of hearth | how are the tests run | what command runs
            hearth's tests | how do I test hearth itself"""),
        "Run `make test` to run the tests.",
        "make test",
    ),
    Answer(
        phrasings("""what is a Modelfile | what's a Modelfile | what does a Modelfile do | explain
            the Modelfile | what is a Modelfile for"""),
        "A Modelfile describes a model: its base, its parameters, its template and its system"
        " message.",
        "describes a model",
    ),
    Answer(
        phrasings("""which Modelfile instruction is required | what must a Modelfile contain | which
            instruction does every Modelfile need"""),
        "FROM is required in a Modelfile.",
        "FROM",
    ),
    Answer(
        phrasings("""does hearth need the internet | can hearth run offline | does hearth work
            without internet | can I use hearth offline"""),
        "hearth runs on your own machine, so it works without the internet.",
        "without the internet",
    ),
    Answer(
        phrasings("""what is the other name of hearth list | is there a short form of hearth list |
            what is the alias of hearth list"""),
        "The alias of `hearth list` is `hearth ls`.",
        "hearth ls",
    ),
)
