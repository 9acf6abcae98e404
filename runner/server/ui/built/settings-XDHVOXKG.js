import{a as D}from"./chunk-UVNEYEII.js";import{a as P,b as E}from"./chunk-PWOOAXO5.js";import{a as x,e as H,f as y,g as S}from"./chunk-DE5Z3KFN.js";import{A as K,C as $,D as R,E as B,F as A,j as u,l as p,m as I,p as O,r as T,s as f,w as e,y as h}from"./chunk-GXOEJPSN.js";import{d as b}from"./chunk-S7PLUQWF.js";import"./chunk-SQE76S5B.js";function C({label:t,text:o,testid:n}){let c=u(!1),a=async()=>{try{await D(o),c.value=!0,setTimeout(()=>c.value=!1,2e3)}catch{B(p.errors.clipboard,"error")}};return e("div",{class:"snippet",children:[e("pre",{tabindex:0,role:"region","aria-label":t,"data-testid":n,children:e("code",{children:o})}),e(h,{icon:c.value?"check":"copy",onClick:a,"aria-label":`${p.common.copy}: ${t}`,children:c.value?p.common.copied:p.common.copy})]})}var s=JSON.stringify,N=t=>JSON.stringify(t,null,2),_=[{id:"openai-python",title:"OpenAI: Python",group:"code",text:({url:t,key:o,model:n})=>`from openai import OpenAI

client = OpenAI(base_url=${s(`${t}/v1`)}, api_key=${s(o)})
stream = client.chat.completions.create(
    model=${s(n)},
    messages=[{"role": "user", "content": "Hello!"}],
    stream=True,
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
`},{id:"openai-js",title:"OpenAI: JavaScript",group:"code",text:({url:t,key:o,model:n})=>`import OpenAI from "openai";

const client = new OpenAI({ baseURL: ${s(`${t}/v1`)}, apiKey: ${s(o)} });
const stream = await client.chat.completions.create({
  model: ${s(n)},
  messages: [{ role: "user", content: "Hello!" }],
  stream: true,
});
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? "");
`},{id:"curl",title:"OpenAI: curl",group:"code",text:({url:t,key:o,model:n})=>`curl ${t}/v1/chat/completions \\
  -H "Authorization: Bearer ${o}" \\
  -H "Content-Type: application/json" \\
  -d '${JSON.stringify({model:n,messages:[{role:"user",content:"Hello!"}]})}'
`},{id:"anthropic",title:"Anthropic: Python",group:"code",text:({url:t,key:o,model:n})=>`from anthropic import Anthropic

client = Anthropic(base_url=${s(t)}, api_key=${s(o)})
message = client.messages.create(
    model=${s(n)},
    max_tokens=1024,
    messages=[{"role": "user", "content": "Hello!"}],
)
print(message.content[0].text)
`},{id:"ollama",title:"Ollama: Python",group:"code",text:({url:t,key:o,model:n})=>`from ollama import Client

client = Client(host=${s(t)}, headers={"Authorization": ${s(`Bearer ${o}`)}})
answer = client.chat(model=${s(n)}, messages=[{"role": "user", "content": "Hello!"}])
print(answer.message.content)
`},{id:"claude-code",title:"Claude Code",group:"agents",text:({url:t,key:o,model:n})=>`ANTHROPIC_BASE_URL=${t} ANTHROPIC_API_KEY=${o} claude --model ${n}
`},{id:"codex",title:"Codex",group:"agents",file:"~/.codex/config.toml",text:({url:t,model:o})=>`model = ${s(o)}
model_provider = "hearth"

[model_providers.hearth]
name = "hearth"
base_url = ${s(`${t}/v1`)}
wire_api = "responses"
env_key = "HEARTH_API_KEY"  # the variable with your key
`},{id:"opencode",title:"opencode",group:"agents",file:"opencode.json",untried:!0,text:({url:t,key:o,model:n})=>N({$schema:"https://opencode.ai/config.json",model:`hearth/${n}`,provider:{hearth:{npm:"@ai-sdk/openai-compatible",name:"hearth",options:{baseURL:`${t}/v1`,apiKey:o},models:{[n]:{name:n}}}}})},{id:"continue",title:"Continue",group:"agents",file:"~/.continue/config.yaml",untried:!0,text:({url:t,key:o,model:n})=>`name: hearth
version: 1.0.0
schema: v1
models:
  - name: ${s(n)}
    provider: openai
    model: ${s(n)}
    apiBase: ${s(`${t}/v1`)}
    apiKey: ${s(o)}
    roles: [chat, edit]
`},{id:"zed",title:"Zed",group:"agents",file:"~/.config/zed/settings.json",untried:!0,text:({url:t,model:o})=>N({language_models:{openai_compatible:{hearth:{api_url:`${t}/v1`,available_models:[{name:o,display_name:o,max_tokens:32768}]}}}})},{id:"open-webui",title:"Open WebUI",group:"apps",untried:!0,text:({url:t,key:o})=>`OPENAI_API_BASE_URL=${t}/v1 OPENAI_API_KEY=${o} open-webui serve
`},{id:"langchain",title:"LangChain",group:"apps",text:({url:t,key:o,model:n})=>`from langchain_openai import ChatOpenAI

llm = ChatOpenAI(base_url=${s(`${t}/v1`)}, api_key=${s(o)}, model=${s(n)})
print(llm.invoke("Hello!").content)
`}];var v=p.settings.connect,M=["code","agents","apps"];function L(){let t=y(()=>f("api/tags"),0),o=u(_[0]?.id??""),n=u(""),c=t.value?.models.filter(r=>r.capabilities.includes("completion")).map(r=>H(r.name))??[],a=n.value||c[0]||"ember",m=_.find(r=>r.id===o.value),k=new URL(".",location.href).href.replace(/\/$/,"");return e("section",{"aria-labelledby":"connect-title",children:[e("h2",{id:"connect-title",children:v.title}),e("div",{class:"row end",children:[e($,{label:v.program,value:o.value,onChange:r=>o.value=r.currentTarget.value,testid:"connect-program",children:M.map(r=>e("optgroup",{label:v.groups[r],children:_.filter(g=>g.group===r).map(({id:g,title:i})=>e("option",{value:g,children:i},g))},r))}),e($,{label:v.model,value:a,onChange:r=>n.value=r.currentTarget.value,testid:"connect-model",children:(c.length?c:[a]).map(r=>e("option",{value:r,children:r},r))})]}),m&&e("div",{class:"connect",children:[e("p",{children:[m.file&&v.notes.file(m.file)," ",m.untried&&v.notes.untried]}),e(C,{label:m.title,text:m.text({url:k,key:v.key,model:a}),testid:"connect-snippet"})]})]})}var U=()=>f("api/settings"),j=async()=>(await f("api/keys")).keys;var l=p.settings.keys,q=["inference","pull","metrics","admin"];function z(){let t=y(j,0),o=u(""),n=u(""),c=u(null),a=u(null),m=n.value||(t.value?.length?"inference":"admin"),k=async i=>{i.preventDefault();try{c.value=await f("api/keys",{body:{name:o.value.trim(),scopes:[m]}}),o.value=n.value=""}catch(w){A(w)}t.value?.length&&t.again()},r=async i=>{try{await T(`api/keys/${encodeURIComponent(i)}`,{method:"DELETE"})}catch(w){A(w)}a.value=null,t.again()},g=i=>l.scope[i]??i;return e("section",{children:[e("h2",{children:l.title}),t.error&&e(x,{error:t.error,onRetry:t.again}),t.value?.length===0&&e("p",{children:l.none}),t.value&&t.value.length>0&&e(S,{caption:l.title,columns:[{title:l.name},{title:l.scopes},{title:l.created},{title:l.action}],testid:"keys",children:t.value.map(i=>e("tr",{"data-testid":"key",children:[e("th",{scope:"row",children:i.name}),e("td",{children:i.scopes.map(g).join(", ")}),e("td",{children:new Date(i.created_at).toLocaleDateString("en-CA")}),e("td",{children:e(h,{kind:"quiet",icon:"trash","aria-label":l.delete(i.name),onClick:()=>a.value=i.name,testid:"key-delete",children:p.common.remove})})]},i.name))}),t.value&&e("form",{class:"row end",onSubmit:k,children:[e(K,{label:l.name,value:o.value,required:!0,maxLength:64,pattern:"[A-Za-z0-9][A-Za-z0-9._\\-]*",autocomplete:"off",onInput:i=>o.value=i.currentTarget.value,testid:"key-name"}),e($,{label:l.scopes,value:m,onChange:i=>n.value=i.currentTarget.value,testid:"key-scope",children:q.map(i=>e("option",{value:i,children:g(i)},i))}),e(h,{type:"submit",icon:"plus",testid:"key-make",children:l.make})]}),c.value&&e(J,{made:c.value,isFirst:!I.value&&!t.value?.length,onClose:()=>(c.value=null,t.again())}),a.value&&e(E,{title:l.remove(a.value),body:l.removing,yes:l.yes,onYes:()=>r(a.value??""),onClose:()=>a.value=null,testid:"key-delete-dialog"})]})}function J({made:t,isFirst:o,onClose:n}){let c=()=>{O(t.key,!1),n()};return e(P,{title:l.made(t.name),onClose:n,testid:"key-made",actions:e(b,{children:[e(h,{onClick:c,kind:o?"primary":"plain",testid:"key-made-use",children:l.use}),e(h,{onClick:n,children:p.common.close})]}),children:[e("p",{children:[l.once," ",o&&l.first]}),e(C,{label:l.made(t.name),text:t.key,testid:"key-text"})]})}var d=p.settings.values;function G({settings:t}){let o=u(!1),n=t.value,c=n?.settings.filter(a=>o.value||a.source!==null)??[];return e("section",{children:[e("h2",{children:d.title}),t.error&&e(x,{error:t.error,onRetry:t.again}),n&&e(b,{children:[e("p",{children:d.intro(n.file)}),e(R,{label:d.all,checked:o.value,onChange:a=>o.value=a.currentTarget.checked,testid:"settings-all"}),c.length===0&&e("p",{class:"quiet",children:d.none}),c.length>0&&e(S,{caption:d.title,columns:[{title:d.setting},{title:d.value},{title:d.source},{title:d.meaning}],testid:"settings",children:c.map(({name:a,variable:m,value:k,source:r,overrides:g,doc:i})=>e("tr",{"data-testid":"setting","data-name":a,children:[e("th",{scope:"row",children:e("code",{children:a})}),e("td",{children:e("code",{children:k||d.empty})}),e("td",{children:[r??d.default,g.length>1&&e("small",{children:[" ",d.overrides(g.slice(0,-1).join(", "))]})]}),e("td",{children:e("small",{children:i})})]},m))}),e("h3",{children:d.folders}),e("dl",{class:"facts-table",children:Object.entries(n.folders).map(([a,m])=>e(b,{children:[e("dt",{children:a},a),e("dd",{children:e("code",{children:m})})]}))})]})]})}function Y(){let t=y(U,0);return e("section",{class:"view","data-testid":"view-settings",children:[e("header",{children:e("h1",{children:p.settings.title})}),e(z,{}),e(L,{}),e(G,{settings:t})]})}export{Y as default};
