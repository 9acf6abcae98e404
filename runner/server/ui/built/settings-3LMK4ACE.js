import{g as e,h as t}from"./chunk-ZGGU7WGY.js";function i(){return t("section",{class:"view","data-testid":"view-settings",children:t("h1",{children:e.settings.title})})}export{i as default};
