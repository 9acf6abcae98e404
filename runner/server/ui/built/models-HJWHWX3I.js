import{g as e,h as t}from"./chunk-ZGGU7WGY.js";function o(){return t("section",{class:"view","data-testid":"view-models",children:t("h1",{children:e.models.title})})}export{o as default};
