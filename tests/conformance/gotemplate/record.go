// Records what Go itself makes of the templates in golden.jsonl:
//
//	go run record.go < golden.jsonl > again.jsonl
//
// The first line has the values. The others have a template, with "chat" when it gets the messages
// and the tools, as types that print and encode as those of Ollama do, and not the data.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/template"
)

type shared struct {
	Data     any     `json:"data"`
	Messages []input `json:"messages"`
	Tools    []tool  `json:"tools"`
}

type row struct {
	Template string  `json:"template"`
	Chat     bool    `json:"chat,omitempty"`
	Expected *string `json:"expected,omitempty"`
	Error    string  `json:"error,omitempty"`
}

type input struct {
	Role       string `json:"role"`
	Content    string `json:"content"`
	Thinking   string `json:"thinking"`
	ToolCalls  calls  `json:"tool_calls"`
	ToolName   string `json:"tool_name"`
	ToolCallID string `json:"tool_call_id"`
}

type message struct {
	Role       string
	Content    string
	Thinking   string
	Images     [][]byte
	ToolCalls  calls
	ToolName   string
	ToolCallID string
}

type call struct {
	ID       string
	Function called
}
type calls []call
type called struct {
	Index     int
	Name      string
	Arguments arguments
}
type arguments map[string]any

func (a arguments) String() string { return encode(map[string]any(a)) }

type tools []tool

func (t tools) String() string { return encode([]tool(t)) }

type tool struct {
	Type     string   `json:"type"`
	Items    any      `json:"items,omitempty"`
	Function function `json:"function"`
}
type function struct {
	Name        string     `json:"name"`
	Description string     `json:"description"`
	Parameters  parameters `json:"parameters"`
}
type parameters struct {
	Type       string     `json:"type"`
	Defs       any        `json:"$defs,omitempty"`
	Items      any        `json:"items,omitempty"`
	Required   []string   `json:"required,omitempty"`
	Properties properties `json:"properties"`
}
type properties map[string]property

func (p properties) String() string {
	if p == nil {
		return "{}"
	}
	return encode(map[string]property(p))
}

// Ollama forgets the last two since its 0.14, and says so in its issue 14601.
func (t tool) String() string       { return encode(t) }
func (f function) String() string   { return encode(f) }
func (p parameters) String() string { return encode(p) }

type types []string

func (t *types) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = types{one}
		return nil
	}
	var many []string
	err := json.Unmarshal(data, &many)
	*t = many
	return err
}

func (t types) MarshalJSON() ([]byte, error) {
	if len(t) == 1 {
		return json.Marshal(t[0])
	}
	return json.Marshal([]string(t))
}

func (t types) String() string {
	if len(t) == 1 {
		return t[0]
	}
	if len(t) == 0 {
		return ""
	}
	return fmt.Sprint([]string(t))
}

type property struct {
	AnyOf       []property           `json:"anyOf,omitempty"`
	Type        types                `json:"type,omitempty"`
	Items       any                  `json:"items,omitempty"`
	Description string               `json:"description,omitempty"`
	Enum        []any                `json:"enum,omitempty"`
	Properties  *map[string]property `json:"properties,omitempty"`
	Required    []string             `json:"required,omitempty"`
}

func encode(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func (s shared) chat() any {
	var system []string
	var all []*message
	for _, m := range s.Messages {
		if m.Role == "system" {
			system = append(system, m.Content)
		}
		if n := len(all); n > 0 && all[n-1].Role == m.Role && m.Role != "tool" {
			all[n-1].Content += "\n\n" + m.Content
		} else {
			all = append(all, &message{m.Role, m.Content, m.Thinking, nil, m.ToolCalls, m.ToolName, m.ToolCallID})
		}
	}
	return map[string]any{
		"System": strings.Join(system, "\n\n"), "Messages": all, "Tools": tools(s.Tools),
		"Response": "", "Think": false, "ThinkLevel": "", "IsThinkSet": false,
	}
}

func (r *row) execute(s shared) error {
	functions := template.FuncMap{"json": encode}
	t, err := template.New("").Option("missingkey=zero").Funcs(functions).Parse(r.Template)
	if err != nil {
		return err
	}
	data := s.Data
	if r.Chat {
		data = s.chat()
	}
	var text strings.Builder
	if err = t.Execute(&text, data); err == nil {
		expected := text.String()
		r.Expected = &expected
	}
	return err
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	output := json.NewEncoder(os.Stdout)
	output.SetEscapeHTML(false)
	var s shared
	lines.Scan()
	if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
		panic(err)
	}
	fmt.Println(lines.Text())
	for lines.Scan() {
		var r row
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		r.Expected, r.Error = nil, ""
		if err := r.execute(s); err != nil {
			r.Error = err.Error()
		}
		output.Encode(r)
	}
}
