import{g as i,h as t}from"./chunk-ZGGU7WGY.js";function e(){return t("section",{class:"view","data-testid":"view-activity",children:t("h1",{children:i.activity.title})})}export{e as default};
