"""Tools of everyday domains, one line each, with many ways to name and to ask for them.

A slot is `letter:kind:name,name`; a question mark after the letter makes it optional. In a question,
`[...]` is dropped when its optional slot is not used; `{verb}` and `{noun}` are those of the tool's name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slot:
    """A parameter: its letter in the questions, its kind, the names it may have."""

    letter: str
    kind: str
    names: tuple[str, ...]
    optional: bool


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a tool can do."""

    verbs: tuple[str, ...]
    nouns: tuple[str, ...]
    describe: str
    slots: tuple[Slot, ...]
    asks: tuple[str, ...]
    known: bool


def _slot(text: str) -> Slot:
    letter, kind, names = text.split(":")
    return Slot(letter.rstrip("?"), kind, tuple(names.split(",")), letter.endswith("?"))


def _action(verbs: str, nouns: str, describe: str, slots: str, *asks: str, known: bool = False) -> Action:
    """`known`: ember can answer such questions without a tool, so they never count as needing a missing one."""
    return Action(tuple(verbs.split()), tuple(nouns.split()), describe, tuple(map(_slot, slots.split())), asks, known)


CITY = "city,location,place,town"
ACTIONS = (
    _action("get fetch check show", "weather forecast current_weather weather_report", "Get the weather of a place",
            f"c:city:{CITY} d?:day:day,date,when u?:units:unit,units,scale", "what is the weather in {c}[ {d}][ in {u}]?", "how is the weather in {c}[ {d}][, in {u}]?",
            "what's the weather like in {c}[ {d}][ in {u}]?", "[{d}: ]weather in {c}[ in {u}]", "tell me the weather for {c}[ {d}][ in {u}]", "do I need an umbrella in {c}[ {d}]?",
            "is it (cold|warm|raining|sunny) in {c}[ {d}]?", "give me the forecast for {c}[ {d}][ in {u}]"),
    _action("get read check", "temperature air_temperature", "Read the temperature of a place", f"c:city:{CITY} u?:units:unit,units", "how (warm|cold|hot) is it in {c}[ in {u}]?",
            "what is the temperature in {c}[ in {u}]?", "temperature in {c}[ in {u}]"),
    _action("get tell fetch", "time current_time local_time clock", "Get the current time in a place", f"c:city:{CITY},zone", "what time is it in {c}?", "what is the time in {c}?",
            "tell me the time in {c}", "how late is it in {c}?", "current time in {c}"),
    _action("add sum plus", "numbers values two_numbers", "Add two numbers", "a:number:a,x,first,left b:number:b,y,second,right", "what is {a} plus {b}?", "add {a} and {b}", "{a} + {b}", "calculate {a} + {b}", known=True),
    _action("multiply times", "numbers values two_numbers", "Multiply two numbers", "a:number:a,x,first b:number:b,y,second", "what is {a} times {b}?", "multiply {a} by {b}", "{a} * {b}", known=True),
    _action("calculate compute evaluate", "math operation arithmetic result", "Do a calculation with two numbers", "o:operation:operation,op,kind a:number:a,x,first,left b:number:b,y,second,right",
            "{o} {a} and {b}", "please {o} {a} and {b}", known=True),
    _action("search find query lookup", "web internet pages online", "Search the web", "q:query:query,q,text,terms n?:small:limit,max_results,count", "search the web for {q}[ and give {n} results]",
            "look up {q}[, {n} results]", "find[ {n}] pages about {q}", "search for {q} online[, at most {n} results]", "google {q}"),
    _action("send write mail", "email mail message_by_email", "Send an email", "t:email:to,recipient,address s?:query:subject,title,topic b:message:body,text,content",
            "send an email to {t}[ with subject {s}] saying {b}", "email {t}[ about {s}]: {b}", "write to {t}[, subject {s},] that says: {b}"),
    _action("send write post", "message text sms chat_message", "Send a message to a person", "t:person:to,recipient,person,contact m:message:message,text,body,content", "send a message to {t}: {m}", "text {t} that says {m}",
            "tell {t}: {m}", "send {t} the message {m}", "write {t} a message saying {m}", "message {t}: {m}"),
    _action("set create add", "reminder alert note_to_self", "Set a reminder", "t:task:text,task,what,title d?:day:day,date,when h?:time:time,at,hour", "remind me to {t}[ {d}][ at {h}]", "set a reminder to {t}[ {d}][ at {h}]",
            "[{d}: ]remind me to {t}[ at {h}]", "add a reminder: {t}[, {d}][, {h}]"),
    _action("set start create", "timer countdown egg_timer", "Start a timer", "m:count:minutes,duration,length,duration_minutes l?:word:label,name", "set a timer for {m} minutes[ called {l}]", "start a {m} minute timer[ named {l}]", "timer {m} minutes[, label {l}]",
            "wake me in {m} minutes", "count down {m} minutes"),
    _action("set create add", "alarm wake_up alarm_clock", "Set an alarm", "h:time:time,at,when d?:weekday:day,weekday", "wake me at {h}[ on {d}]", "set an alarm for {h}[ on {d}]", "alarm at {h}[ on {d}]"),
    _action("convert exchange change", "currency money currencies", "Convert money", "a:price:amount,value,sum f:currency:from,source,from_currency t:currency:to,target,to_currency", "convert {a} {f} to {t}", "how much is {a} {f} in {t}?",
            "change {a} {f} into {t}", "what are {a} {f} in {t}?"),
    _action("convert change", "units length distance_units", "Convert a length", "a:number:value,amount,number f:length:from,from_unit,source t:length:to,to_unit,target", "convert {a} {f} to {t}", "how many {t} are {a} {f}?", "{a} {f} in {t}"),
    _action("translate", "text word phrase sentence", "Translate a text", "m:message:text,sentence,content,phrase l:language:language,target,to,target_language", "translate {m} into {l}", "translate to {l}: {m}", "how do you say {m} in {l}?", "say {m} in {l}"),
    _action("get fetch check lookup", "stock_price stock share_price quote", "Get the price of a share", "s:code:symbol,ticker,stock", "what is the price of the stock {s}?", "how much is {s} stock?", "stock price of {s}", "get the share price of {s}"),
    _action("play start", "music song track audio", "Play music", "s:query:song,title,track,name a?:person:artist,by,singer", "play {s}[ by {a}]", "I want to hear {s}[ by {a}]", "start the song {s}[ by {a}]", "put on {s}[ by {a}]"),
    _action("play start", "genre radio station playlist", "Play music of a genre", "g:genre:genre,style,kind v?:percent:volume,level", "play some {g} music[ at volume {v}]", "put on {g}[ at volume {v}]", "I feel like {g} music[, volume {v}]"),
    _action("set change adjust", "volume sound_level loudness", "Set the volume", "v:percent:level,volume,percent", "set the volume to {v}", "volume {v}", "turn the volume to {v} percent"),
    _action("create add schedule make", "event meeting appointment calendar_entry", "Put an event in the calendar", "t:query:title,name,summary d:day:date,day,when h?:time:time,start,at p?:names:attendees,people,guests",
            "schedule {t} for {d}[ at {h}][ with {p}]", "add an event {t} on {d}[ at {h}][ with {p}]", "put {t} in my calendar for {d}[ at {h}][ with {p}]"),
    _action("list get show", "events appointments agenda meetings", "List the events of a day", "d:day:date,day,when", "what is on my calendar {d}?", "what do I have {d}?", "show my appointments for {d}", "list the events of {d}"),
    _action("get find plan compute", "directions route way path", "Find the way between two places", "f:city:from,origin,start,source t:city:to,destination,end,target m?:transport:mode,by,transport", "how do I get from {f} to {t}[ by {m}]?",
            "directions from {f} to {t}[ by {m}]", "plan a route from {f} to {t}[ by {m}]", "find the way from {f} to {t}[ by {m}]"),
    _action("get measure compute", "distance how_far travel_distance", "Distance between two places", "f:city:from,origin,start,a t:city:to,destination,end,b", "how far is it from {f} to {t}?", "what is the distance between {f} and {t}?", "distance from {f} to {t}"),
    _action("get fetch read", "news headlines latest_news", "Get the news on a topic", "q:query:topic,subject,about n?:small:limit,count", "what is the news about {q}[? Give me {n}]", "show me[ {n}] headlines about {q}", "news on {q}[, {n} items]"),
    _action("book reserve", "table restaurant restaurant_table dinner", "Book a table", "r:person:restaurant,name,place n:small:people,guests,party_size,seats d?:day:day,date,when h?:time:time,at", "book a table at {r} for {n} people[ {d}][ at {h}]",
            "reserve a table for {n} at {r}[ {d}][ at {h}]"),
    _action("search find book", "flights flight plane_ticket", "Find flights", "f:city:from,origin,departure t:city:to,destination,arrival d:date:date,day,departure_date s?:seat:seat,seat_type", "find a flight from {f} to {t} on {d}[ with a {s} seat]",
            "I want to fly from {f} to {t} on {d}[, {s} seat]", "flights from {f} to {t} on {d}[, {s} seat]"),
    _action("book find reserve", "hotel room hotel_room stay", "Book a hotel room", f"c:city:{CITY} n:small:nights,days,duration d?:date:check_in,date,start_date", "book a hotel in {c} for {n} nights[ from {d}]", "I need a room in {c} for {n} nights[ starting {d}]",
            "find a hotel in {c}, {n} nights[, check in {d}]"),
    _action("book buy get", "ticket train_ticket bus_ticket", "Buy a ticket", "f:city:from,origin,start t:city:to,destination,end n?:small:count,passengers,tickets", "buy[ {n}] train tickets from {f} to {t}", "get a ticket from {f} to {t}[ for {n} people]"),
    _action("find search get lookup", "recipe recipes meal_idea", "Find a recipe", "f:food:ingredient,with,main_ingredient m?:count:max_minutes,time_limit,minutes", "find a recipe with {f}[ that takes {m} minutes]", "what can I cook with {f}[ in {m} minutes]?", "recipe with {f}[, at most {m} minutes]"),
    _action("switch set control toggle", "light lights lamp light_switch", "Switch the light in a room", "r:room:room,where,location s:switch:state,status,power", "turn {s} the light in the {r}", "switch the {r} light {s}", "lights {s} in the {r}", "please turn the light {s} in the {r}"),
    _action("set change dim", "brightness light_level lamp_brightness", "Set the brightness in a room", "r:room:room,where l:percent:level,brightness,percent", "set the brightness in the {r} to {l}", "dim the {r} to {l} percent", "{r} light at {l} percent"),
    _action("set change", "thermostat heating room_temperature heater", "Set the heating", "t:count:temperature,degrees,target r?:room:room,zone", "set the heating[ in the {r}] to {t} degrees", "make it {t} degrees warm[ in the {r}]", "heat[ the {r}] to {t} degrees"),
    _action("turn switch control toggle", "device appliance smart_device", "Switch a device", "d:device:device,name,target s:switch:state,power,action", "turn {s} the {d}", "switch the {d} {s}", "turn the {d} {s} please"),
    _action("lock set", "door lock door_lock", "Lock or unlock a door", "d:room:door,which,room l:flag:locked,lock,closed", "set the {d} door lock to {l}", "{d} door: locked {l}"),
    _action("generate pick get", "random_number number_in_range random_integer", "Pick a random number", "a:count:min,low,from,minimum b:large:max,high,to,maximum", "pick a random number between {a} and {b}", "random number from {a} to {b}", "give me a number between {a} and {b}"),
    _action("roll throw", "dice die cubes", "Roll dice", "n:small:count,dice,number,times s?:count:sides,faces", "roll {n} dice[ with {s} sides]", "throw {n} dice[ with {s} sides]"),
    _action("create add write save", "note memo sticky_note", "Save a note", "t:message:text,content,note,body", "note: {t}", "write down: {t}", "make a note that says {t}", "save the note {t}"),
    _action("create add", "task todo todo_item", "Add a task", "t:task:title,task,name,text p?:priority:priority,importance,level", "add a task: {t}[ with {p} priority]", "add {t} to my tasks[ with {p} priority]", "new[ {p} priority] task: {t}"),
    _action("complete finish close", "task todo job", "Finish a task", "i:large:id,task_id,number", "mark task {i} as done", "finish task {i}", "task {i} is done", "complete number {i}"),
    _action("add put append", "shopping_item item_to_list shopping_list groceries", "Put something on the shopping list", "f:food:item,product,name n?:small:quantity,count,amount", "put {f} on the shopping list[, {n} of them]", "add[ {n}] {f} to my shopping list", "we need {f}[, {n} pieces]"),
    _action("track get find check", "order package parcel shipment", "Find out where an order is", "i:code:order_id,id,number,tracking_number", "where is my order {i}?", "track order {i}", "what is the status of order {i}?", "find package {i}"),
    _action("cancel stop delete", "order purchase booking", "Cancel an order", "i:code:order_id,id,number r?:query:reason,why", "cancel order {i}[ because of {r}]", "cancel my order {i}[, reason: {r}]", "stop order {i}[, reason: {r}]"),
    _action("order buy purchase", "product item goods", "Buy a product", "p:thing:product,item,name n:small:quantity,count,amount s?:size:size,variant c?:color:color,colour", "order {n} {p}s[ in size {s}][ in {c}]", "buy {n} {p}s[, size {s}][, color {c}]", "I want {n} {p}s[, {s}][, {c}]"),
    _action("order", "pizza food meal", "Order food", "f:food:dish,food,item s:size:size,portion n?:small:count,quantity", "order a {s} {f}[, {n} times]", "I'd like a {s} {f}[, {n} of them]", "bring me a {s} {f}[, {n} pieces]"),
    _action("get check fetch", "balance account account_balance", "Get the balance of an account", "a:large:account,account_id,account_number", "what is the balance of account {a}?", "how much money is in account {a}?", "balance of {a}"),
    _action("transfer send pay", "money payment funds", "Send money", "a:price:amount,sum,value t:person:to,recipient,receiver c?:currency:currency", "send {a}[ {c}] to {t}", "pay {t} {a}[ {c}]", "transfer {a}[ {c}] to {t}"),
    _action("call phone dial ring", "person contact number", "Call somebody", "p:person:name,person,contact,who", "call {p}", "ring {p}", "phone {p} please", "I want to talk to {p}"),
    _action("find get lookup", "contact phone_number address person_info", "Find a contact", "p:person:name,person,contact", "what is the number of {p}?", "find the contact {p}", "look up {p} in my contacts"),
    _action("create add register", "user account customer member", "Create a user", "n:person:name,full_name,user_name e:email:email,mail,address a?:count:age,years", "create a user {n} with email {e}[, age {a}]", "register {n}, {e}[, {a} years old]", "add the user {n} ({e}[, age {a}])"),
    _action("get find fetch load", "user customer employee profile", "Get a user by id", "i:large:id,user_id,customer_id,number", "show user {i}", "who is user {i}?", "get the profile of user {i}", "find user number {i}"),
    _action("delete remove erase", "user customer record entry", "Delete a record", "i:large:id,user_id,record_id", "delete user {i}", "remove record {i}", "erase entry {i}"),
    _action("read open load cat", "file document text_file", "Read a file", "f:file:path,file,filename,file_name", "read {f}", "open the file {f}", "what is in {f}?", "show me {f}"),
    _action("write save create", "file document text_file", "Write a file", "f:file:path,file,filename t:message:content,text,body", "write {t} to {f}", "save {t} in {f}", "create {f} with the text {t}"),
    _action("delete remove", "file document", "Delete a file", "f:file:path,file,filename", "delete {f}", "remove the file {f}"),
    _action("list show", "files directory folder", "List the files of a folder", "d:word:folder,directory,path r?:flag:recursive,deep,all", "list the files in {d}[, recursive {r}]", "what files are in the folder {d}[ with recursive {r}]?", "show the folder {d}[, recursive {r}]"),
    _action("run execute", "command shell shell_command query_text", "Run a command", "c:file:command,script,cmd,program", "run {c}", "execute {c}", "start the script {c}"),
    _action("fetch open get download", "url page website web_page", "Load a web page", "u:url:url,link,address", "open {u}", "fetch {u}", "load the page {u}", "what is on {u}?"),
    _action("search find lookup", "books book library catalog", "Search for books", "a:person:author,writer,by g?:genre:style,genre", "find[ {g}] books by {a}", "which[ {g}] books did {a} write?", "search the library for {a}[, genre {g}]"),
    _action("search find recommend", "movies movie film cinema", "Search for films", "q:query:title,query,name y?:large:year,released", "find the movie {q}[ from {y}]", "search for a film called {q}[, year {y}]", "{verb} the film {q}[, {y}]"),
    _action("define lookup explain", "word term meaning definition", "Look a word up in a dictionary", "w:word:word,term,entry", "define {w}", "what does {w} mean?", "look up the word {w}", "what is the meaning of {w}?"),
    _action("average mean sum", "numbers list values", "Work on a list of numbers", "n:numbers:numbers,values,list", "{verb} {n}", "what is the {verb} of {n}?", "give me the {verb} of {n}", known=True),
    _action("sort order", "list words items", "Sort a list", "w:words:items,list,words,values r?:flag:reverse,descending", "sort {w}[ with reverse {r}]", "put {w} in order[, reverse {r}]", known=True),
    _action("invite add", "guests people members participants", "Invite people", "p:names:names,people,guests,who e?:query:event,to,occasion", "invite {p}[ to {e}]", "add {p}[ to {e}]", "please invite {p}[ to {e}]"),
    _action("draw paint create make generate", "image picture drawing art", "Make a picture", "q:query:prompt,description,subject s?:size:size,format", "draw {q}[ in {s} size]", "make a[ {s}] picture of {q}", "paint {q}[, {s}]"),
    _action("move turn drive steer", "robot vehicle rover arm", "Move the robot", "d:direction:direction,way,where n:count:steps,distance,amount s?:speed:speed,pace", "move the robot {d} by {n} steps[, {s}]", "go {d} {n} steps[ at {s} speed]", "{n} steps {d}[, {s}]"),
    _action("get check measure", "air_quality humidity wind rain", "Measure the air of a place", f"c:city:{CITY}", "what is the {noun} in {c}?", "{verb} the {noun} in {c}", "how is the {noun} in {c}?", "{noun} in {c}"),
    _action("get find show", "sunrise sunset moon_phase tide", "Times of the sky", f"c:city:{CITY} d?:date:date,day", "when is the {noun} in {c}[ on {d}]?", "tell me the {noun} in {c}[ on {d}]", "show the {noun} for {c}[ on {d}]"),
    _action("update change set", "ticket issue status case", "Change the status of a ticket", "i:large:id,ticket_id,issue,number s:status:status,state", "set ticket {i} to {s}", "mark issue {i} as {s}", "ticket {i} is now {s}"),
    _action("create open file", "ticket issue bug_report case", "Open a ticket", "t:query:title,subject,summary p:priority:priority,severity,urgency", "open a {p} priority ticket: {t}", "create a ticket about {t} with {p} priority", "file an issue {t}, priority {p}"),
    _action("export save convert", "report data table results", "Export a report", "n:word:name,report,title f:format:format,type,as", "export {n} as {f}", "save the report {n} as {f}", "give me {n} in {f} format"),
    _action("track log record add", "workout run exercise training", "Log a workout", "t:word:activity,kind,sport m:count:minutes,duration,length", "log {m} minutes of {t}", "I did {t} for {m} minutes", "record {t}, {m} minutes"),
    _action("log add record", "expense cost spending", "Log an expense", "a:price:amount,cost,sum c:word:category,for,what", "I spent {a} on {c}", "log an expense of {a} for {c}", "add {a} for {c} to my expenses"),
    _action("check find get", "parking bus_times train_times traffic", "Check the traffic of a place", f"c:city:{CITY} h?:time:time,at,hour", "how is the {noun} in {c}[ at {h}]?", "check the {noun} in {c}[ at {h}]", "tell me about the {noun} in {c}[ at {h}]"),
    _action("post publish share", "tweet status_update photo story", "Post to a channel", "m:message:text,message,content c?:word:channel,group", "post {m}[ in {c}]", "publish: {m}[ in {c}]", "share {m}[ in {c}]"),
    _action("subscribe follow join", "channel newsletter list group", "Subscribe to something", "e:email:email,address c:word:channel,name,list", "subscribe {e} to {c}", "add {e} to the list {c}", "sign {e} up for {c}"),
    _action("encode hash encrypt", "text string password", "Encode a text", "t:word:text,input,value,string", "encode {t}", "hash the text {t}", "encrypt {t}"),
    _action("get find", "holiday public_holiday day_off", "Find holidays", "m:month:month,in,when y?:large:year", "which holidays are in {m}[ {y}]?", "find the holidays of {m}[ {y}]", "is there a day off in {m}[ {y}]?"),
)
